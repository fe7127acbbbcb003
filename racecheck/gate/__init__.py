"""The conformance suite as a gate for CI: a checkpointer against every check, with an effort and a baseline.

Not here: the checks themselves (`targets.suite`), the command that starts the gate (`frontends.cli`).
Imports: explore, faults, invariants, model, report, scheduling, sessions, storage, targets.
"""
