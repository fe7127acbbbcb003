"""The state of one run, from the fork of its ranks to each rank's result."""
