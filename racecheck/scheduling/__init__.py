"""Orders of ops: which of them differ, which to try next, and to which order a failure is due.  Runs nothing.

Not here: the loop that makes the runs (`explore`), which ops depend on each other (`storage.footprints`).
Imports: faults, invariants, model, storage.
"""
