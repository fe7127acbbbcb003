"""Every process that is started, and what runs in it."""
