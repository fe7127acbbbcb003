"""Linux: system calls, the seccomp filter, memory, /proc, file locks, path walks.  Knows no run and no torch.

Not here: what is done about a call (`supervisor.calls`).
Imports: model.
"""
