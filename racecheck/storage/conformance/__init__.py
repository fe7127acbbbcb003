"""Does a storage model allow what it must, and nothing else?"""
