"""What a launch command would start: the real launcher runs once, and each rank reports and ends before its script."""
