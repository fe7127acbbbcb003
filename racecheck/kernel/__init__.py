"""Linux: system calls, the filter, memory, /proc, how a path is walked.  Knows no run and no torch."""
