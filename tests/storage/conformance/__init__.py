"""Check that a storage model allows what it must, and nothing else."""
