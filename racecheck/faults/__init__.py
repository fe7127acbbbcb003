"""Faults that are injected on purpose: their grammar, and which ops a fault hits.

Not here: how a fault is injected into a call (`supervisor.act`), what a crash leaves (`crash`).
Imports: kernel, model.
"""

from __future__ import annotations

from racecheck.faults.grammar import DAMAGES, GRAMMAR, check, kinds, parse, text
from racecheck.faults.plan import Plan, counts, hits, is_modelled, matches, may_hit, takes_room

__all__ = [
    "DAMAGES", "GRAMMAR", "Plan", "check", "counts", "hits", "is_modelled", "kinds", "matches", "may_hit", "parse",
    "takes_room", "text",
]  # fmt: skip
