"""Controlled worlds: processes, and the supervisor that decides what they do when."""
