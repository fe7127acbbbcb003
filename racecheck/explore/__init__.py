"""Searches: many runs of a scenario, their findings on disk, and a finding's run again.

Not here: one run (`supervisor`), which order to try next (`scheduling`), crash states (`crash`).
Imports: agent, crash, faults, invariants, kernel, model, scheduling, sessions, storage, supervisor, targets.
"""
