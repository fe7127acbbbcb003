"""The log as it would be had the code been written otherwise."""
