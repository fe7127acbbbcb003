"""What a crash leaves of a run on its disks, and what the recovery makes of that."""
