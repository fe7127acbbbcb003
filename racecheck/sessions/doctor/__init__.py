"""Examine whether this machine can run controlled worlds, by trying every primitive."""
