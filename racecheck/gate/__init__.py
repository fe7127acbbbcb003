"""The gate: a checkpointer against the checks of the conformance suite, within a budget, with a verdict for CI.

cells       what came of a checkpointer and a check: the one noun here
subjects    a checkpointer, what it takes, and the checks that are asked of it
plan        how the time is shared out, the most telling checks first
trial       one plain run, before time is spent: can it be judged at all?
judging     the checks, one by one
baseline    findings that are known, and what is new
store       cells on disk, so that an interrupted gate goes on
matrix      cells by checkpointer, invariant and storage
result      what the gate came to, also as JSON
pages       the same for people, as blocks
layouts     these on a terminal, in Markdown and in HTML
junit       the result for CI servers
command     ``racecheck gate``
"""
