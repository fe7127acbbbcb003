"""Perform a call in a rank's place, and answer it."""
