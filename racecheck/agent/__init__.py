"""The code that runs in a process with torch: ranks, the zygote that forks them, readers of checkpoint files.

Not here: the processes themselves, and when they end (`sessions`), the answers to hypercalls (`supervisor`).
Imports: invariants, kernel, model, targets.
"""
