"""The state of each thread: its request, its collective, its clock, the keys of the store."""
