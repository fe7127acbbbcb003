"""Threads that are held before a wait: for the GIL, for memory, with a time limit, or for a service outside the run."""
