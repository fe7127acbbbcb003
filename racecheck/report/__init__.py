"""Runs, searches and findings: as text for people, as data for programs.

Not here: the gate's pages (`gate.pages`), the files that findings are kept in (`explore.findings`).
Imports: crash, explore, faults, invariants, kernel, model, scheduling, targets.
"""
