"""The nouns: ops, outcomes, worlds, findings' fields; the language of ops; errors; settings.  Standard library only.

Not here: anything that acts.
Imports: nothing.
"""
