"""One run of a world: what each thread is stopped at, which op goes next, and how that op is performed.

Not here: what runs inside ranks (`processes.ranks`), decoding of system calls by the kernel's rules (`kernel`).
Imports: faults, kernel, model, processes, scheduling, storage.
"""
