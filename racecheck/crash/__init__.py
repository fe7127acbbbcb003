"""The states that a crash can leave on disk, the recovery from each, and the changes that would prevent a loss.

Not here: the recorder of a run's writes (`supervisor.finish.recorder`), invariants of recoveries (`invariants`).
Imports: faults, model, scheduling, sessions, storage, supervisor.
"""
