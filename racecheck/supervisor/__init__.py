"""One run of a world: what each thread is stopped at, which op goes next, and how it is done."""
