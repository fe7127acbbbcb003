"""The effects of an op on files, locks and keys, and the names of ops."""
