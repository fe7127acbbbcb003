"""The conformance suite as a gate for CI: a checkpointer against every check, within a budget, with a baseline.

Not here: the checks themselves (`targets.suite`), the command that starts the gate (`frontends.cli`).
Imports: crash, explore, invariants, model, processes, report, scheduling, targets.
"""
