"""The strategy that follows the order of an observed run."""

from __future__ import annotations

from random import Random

from racecheck.model.nouns import Op, Point
from racecheck.scheduling.strategies.following.observed import Observed
from tests.support.builders import op


def test_the_rank_whose_next_op_came_first_goes() -> None:
    strategy = Observed([1, 0, 0, 1])
    strategy.begin(Random(0))
    left = {0: [op("0 open a"), op("0 write a")], 1: [op("1 open b"), op("1 write b")]}
    done: list[Op] = []
    while any(left.values()):
        options = tuple(ops[0] for ops in left.values() if ops)
        chosen = options[strategy.choose(Point("next", options, done))]
        done.append(left[chosen.rank].pop(0))
    assert [each.rank for each in done] == [1, 0, 0, 1]


def test_ops_that_are_on_no_file_do_not_count_and_what_was_not_observed_comes_last() -> None:
    strategy = Observed([1, 0])
    strategy.begin(Random(0))
    trace = [op("1 sleep"), op("1 open TMPDIR/1/x")]
    options = (op("0 open a"), op("1 open b"))
    assert strategy.choose(Point("next", options, trace)) == 1
    trace = [*trace, op("1 open b")]
    assert strategy.choose(Point("next", (op("1 open more"), op("0 open a")), trace)) == 1
    assert strategy.choose(Point("fault", options, trace)) == 0
