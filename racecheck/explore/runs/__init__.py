"""Independent runs: this process makes them, and workers help."""
