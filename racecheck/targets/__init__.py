"""What is tested: scenarios, how a name leads to one, and checkpointers."""
