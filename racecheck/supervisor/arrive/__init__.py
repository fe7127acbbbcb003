"""A call arrives: it is received, and answered at once, held, or the op that its thread is stopped at."""
