"""Launch commands: the real launcher runs once, and each rank reports how it was started and ends before its script."""
