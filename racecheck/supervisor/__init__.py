"""One run of a world: what each thread is stopped at, which op goes next, and how that op is performed.

Not here: what runs inside ranks (`agent`), decoding of system calls by the kernel's rules (`kernel`).
Imports: agent, faults, kernel, model, scheduling, sessions, storage.
"""
