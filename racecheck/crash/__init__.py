"""Crash states: what of a run's changes a crash leaves on the disk, by models that are certified on file systems."""
