"""Faults that are injected on purpose: their grammar, and which ops a fault hits.

Not here: how a fault is injected into a call (`supervisor.act`), what a crash leaves (`crash`).
Imports: kernel, model.
"""

from __future__ import annotations

from racecheck.faults.grammar import GRAMMAR, check, parse, text
from racecheck.faults.plan import Plan, counts, hits, is_modelled, may_hit, takes_room

__all__ = [
    "GRAMMAR", "Plan", "check", "counts", "hits", "is_modelled", "may_hit", "parse", "takes_room", "text",
]  # fmt: skip
