"""Can this machine run controlled worlds?  Every primitive is tried."""
