"""Orders of ops: which of them differ, which to try next, and what a failing one owes its failure to."""
