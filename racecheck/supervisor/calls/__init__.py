"""Carrying out a call in a rank's place, and answering it."""
