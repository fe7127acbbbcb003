"""Carry a call out in a rank's place."""
