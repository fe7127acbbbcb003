"""What an op says of files, locks and keys, and the names that it goes by."""
