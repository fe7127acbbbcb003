"""The checkpointers of released frameworks, one file for each."""
