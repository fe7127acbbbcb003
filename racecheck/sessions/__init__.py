"""Processes that racecheck starts and ends: sessions with their slots on disk, guardians, launchers, the doctor.

Not here: the code that runs in ranks (`agent`), the supervisor, which controls them from outside (`supervisor`).
Imports: agent, kernel, model, storage, targets.
"""
