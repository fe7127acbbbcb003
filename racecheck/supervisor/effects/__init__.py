"""Effects that change an op's result: faults, caches of nodes, buckets of objects."""
