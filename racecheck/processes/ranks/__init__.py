"""What forks ranks, and what runs in them."""
