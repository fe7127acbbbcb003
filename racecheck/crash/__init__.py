"""The states that a crash can leave on disk, the recovery from each, and what would repair a loss.

Not here: the recorder of a run's writes (`supervisor.recorder`), invariants of recoveries (`invariants`).
Imports: invariants, kernel, model, processes, scheduling, storage, supervisor, targets.
"""
