"""The interface to Linux: system calls, the seccomp filter, memory of other processes, /proc."""
