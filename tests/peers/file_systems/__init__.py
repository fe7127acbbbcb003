"""Compare the models with real file systems: run random programs, crash, and look."""
