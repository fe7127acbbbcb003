"""The nouns: ops, outcomes, worlds, findings' fields; what an op says; errors; settings.  Standard library only.

Not here: anything that acts.
Imports: nothing.
"""
