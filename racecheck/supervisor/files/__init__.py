"""Which file a path or a descriptor of a rank refers to."""
