"""The programs that people and CI start: command line, pytest plugin and fixture, property tests, the suite in tests.

Not here: how a search runs (`explore`), how its result reads (`report`), the gate's verdict (`gate`).
Imports: explore, faults, gate, invariants, kernel, model, report, scheduling, sessions, storage, targets.
"""
