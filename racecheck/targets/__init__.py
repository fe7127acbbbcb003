"""Things under test: scenarios, how a name leads to one, the conformance suite, adapters of released checkpointers.

Not here: invariants (`invariants`), the gate that asks the suite's checks (`gate`).
Imports: faults, invariants, kernel, model.
"""
