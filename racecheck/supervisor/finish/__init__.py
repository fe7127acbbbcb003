"""The end of an op: its thread is answered, and the op is recorded."""
