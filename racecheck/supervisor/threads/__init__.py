"""What is known of each thread: its request, its collective, its clock, the keys of the store."""
