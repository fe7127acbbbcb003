"""Every process that racecheck starts, and the code that runs inside it: ranks, zygote, guardian, readers, doctor.

Not here: the supervisor, which controls ranks from outside (`supervisor`).
Imports: invariants, kernel, model, storage, targets.
"""
