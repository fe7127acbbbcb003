"""Which disks a crash may leave of a run, under a model of storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import Changes, LastingChoice
from racecheck.crash.cuts import Cut, cuts
from racecheck.crash.legal import Legal, Limits, bounded, tears
from racecheck.crash.log import Disk, Log
from racecheck.crash.models import MODELS as _MODELS
from racecheck.crash.models import Model
from racecheck.crash.possible import Possible
from racecheck.model.nouns import Crash

MODELS = tuple(_MODELS)
"""The names of the models; "ext4" stands for ext4 with data=ordered, and what "xfs" can lose is among what it can."""

ALL, APART, MOST = 4096, 4, 100_000
"""All states are enumerated where a crash at one place leaves no more than this many (between collectives: than a part
of that), else those of a bounded set; and this many candidates must be enough."""


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk that a crash may leave, with the crash that loses least to leave it."""

    disk: Disk
    crash: Crash


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Distinct crash states, the default first: the first is the whole end state, with nothing lost.

    ``truncated`` says why these are not all, "" if they are.  ``cuts`` counts the places in the run where it was cut,
    ``candidates`` the states that were looked at, equal ones included.
    """

    states: tuple[CrashState, ...]
    truncated: str
    cuts: int
    candidates: int


def states(log: Log, model: str, *, budget: int = 20_000, acks: Sequence[int] = (), most: int = ALL) -> Enumeration:
    """Return the disks that a crash in the course of ``log`` may leave.

    ``model`` is one of `MODELS`.  ``budget`` bounds the states, the default being kept.  ``acks`` are trace indices:
    disks are told apart if not the same number of these events had happened, so that what had been acknowledged then
    can be compared with each.  ``most``: where there are more ways than that to lose something of one cut, only those
    of a bounded set are taken.  Raises `ValueError` for a model that there is not.
    """
    if model not in _MODELS:
        raise ValueError(f"no model {model!r}; there are: {', '.join(MODELS)}")
    return _Enumerator(log, model, acks, most).enumerate(budget)


class _Enumerator:
    """The states of a log under a model, each with the least crash that leaves it."""

    def __init__(self, log: Log, name: str, acks: Sequence[int], most: int) -> None:
        self.log = log
        self.name = name
        self.model: Model = _MODELS[name]
        self.changes = Changes(log, self.model.split, self.model.tails)
        self.limits = Limits(self.changes, self.model)
        self.possible = Possible(self.changes, self.limits.rules)
        self.acks = frozenset(acks)
        self.most = most
        self.candidates = 0
        self.bounded = 0
        self.skipped = 0
        self._syncs = mask_of(self.limits.rules.promises)
        self.cuts, self.left_out = cuts(log, acks, None if self.model.keeps_all else self._syncs)
        self._shorter = self._by_size(apart=False)
        self._apart = self._by_size(apart=True)
        self._watersheds = self._largest()
        self._cut_short: set[tuple[int, int]] = set()
        self._found: dict[object, tuple[tuple[int, int, int], Cut, LastingChoice]] = {}

    def enumerate(self, budget: int) -> Enumeration:
        """Return all of them, or as many as the budget allows."""
        for cut in self.cuts:
            self._add(cut, LastingChoice(self.changes.of_entries(cut.entries)))
        for cut in sorted(self.cuts, key=lambda each: each not in self._watersheds):
            for choice in self._torn_now(cut) if self.model.keeps_all else self._lossy(cut):
                self._add(cut, choice)
        ordered = sorted(self._found.values(), key=lambda each: each[0])
        kept = tuple(self._state(cut, choice) for _, cut, choice in ordered[:budget])
        return Enumeration(kept, self._truncated(len(ordered), budget), len(self.cuts), self.candidates)

    def _truncated(self, found: int, budget: int) -> str:
        reasons = [self.left_out] if self.left_out else []
        if self.bounded:
            reasons.append(f"only some of the possible losses at {self.bounded} of {len(self.cuts)} cuts")
        if self.skipped:
            reasons.append(f"no losses tried at {self.skipped} of {len(self.cuts)} cuts")
        if found > budget:
            reasons.append(f"{found - budget} states beyond the budget of {budget}")
        return "; ".join(reasons)

    def _by_size(self, *, apart: bool) -> dict[int, list[Cut]]:
        """Yield the prefixes of the run, or its other cuts, the smallest first, by the acknowledgements before them."""
        found: dict[int, list[Cut]] = {}
        for cut in sorted(self.cuts, key=lambda each: each.entries.bit_count()):
            if cut.apart == apart:
                found.setdefault(cut.reached, []).append(cut)
        return found

    def _largest(self) -> set[Cut]:
        """Yield the cuts after which nothing can continue without a promise or an acknowledgement.

        The crash states of any other cut are among those of these.
        """
        groups: dict[tuple[int, int], list[Cut]] = {}
        for cut in sorted(self.cuts, key=lambda each: (-each.entries.bit_count(), each.apart)):
            group = groups.setdefault((cut.reached, cut.entries & self._syncs), [])
            if all(cut.entries & ~each.entries for each in group):
                group.append(cut)
        return {cut for group in groups.values() for cut in group}

    def _add(self, cut: Cut, choice: LastingChoice) -> None:
        """Keep a state, or the way to it that loses less."""
        self.candidates += 1
        key = (cut.reached, *self.changes.key(choice))
        before = self._found.get(key)
        if before is not None and before[0][0] == 0:
            return
        cut = self._earliest(cut, choice)
        lost = self.changes.of_entries(cut.entries) & ~choice.lasts
        harm = lost.bit_count() + len(choice.sizes) + (choice.torn is not None)
        rank = (harm, cut.apart, -cut.entries.bit_count())
        if before is None or rank < before[0]:
            self._found[key] = (rank, cut, choice)

    def _earliest(self, cut: Cut, choice: LastingChoice) -> Cut:
        """Return the smallest cut of its kind at which a crash may leave the same: what is lost need not have happened.

        The promises of an fsync had come.
        """
        needed = cut.entries & self._syncs | mask_of(self.changes.entries_of(choice.lasts))
        needed |= mask_of(self._grown(inode, size) for inode, size in choice.sizes)
        smaller = (self._apart if cut.apart else self._shorter)[cut.reached]
        return next(each for each in smaller if not needed & ~each.entries)

    def _state(self, cut: Cut, choice: LastingChoice) -> CrashState:
        lost = self.changes.entries_of(self.changes.of_entries(cut.entries) & ~choice.lasts)
        torn = lost & self.changes.entries_of(choice.lasts)
        if choice.torn is not None:
            torn.add(self.changes.every[choice.torn[0]].entry)
        torn |= {self._grown(inode, size) for inode, size in choice.sizes}
        kept = self._events(self.changes.entries_of(choice.lasts & self.changes.kinds["data"]))
        torn |= {each for each in lost if self.log.entries[each].event in kept}
        gone, part = (tuple(e for e in self._events(kind) if cut.events >> e & 1) for kind in (lost - torn, torn))
        crash = Crash(self.name, tuple(bits(cut.events)), gone, part, self._kept(cut, choice, lost | torn))
        return CrashState(self.changes.disk(choice), crash)

    def _kept(self, cut: Cut, choice: LastingChoice, hurt: set[int]) -> tuple[tuple[int, int, int], ...]:
        """Return the part that lasted of the events of these entries, and of an interrupted one (see `Crash`)."""
        events = {self.log.entries[each].event for each in hurt}
        events |= {
            entry.event
            for index, entry in enumerate(self.log.entries)
            if not cut.entries >> index & 1 and entry.event >= 0 and cut.events >> entry.event & 1
        }
        entries = mask_of(index for index, entry in enumerate(self.log.entries) if entry.event in events)
        kept = [(number, -1, -1) for number in bits(choice.lasts & self.changes.of_entries(entries))]
        if choice.torn is not None:
            kept = [*(each for each in kept if each[0] != choice.torn[0]), choice.torn]
        kept += [(self._grown(inode, size), -1, size) for inode, size in choice.sizes]
        return tuple(sorted(kept))

    def _grown(self, inode: int, size: int) -> int:
        """Return the first call that gave a file this length."""
        for change in self.changes.chosen(self.changes.of_inode[inode]):
            entry = self.log.entries[change.entry]
            if size == entry.length if entry.kind == "truncate" else size <= entry.offset + entry.length:
                return change.entry
        return 0

    def _events(self, entries: set[int]) -> tuple[int, ...]:
        return tuple(sorted({self.log.entries[each].event for each in entries} - {-1}))

    def _torn_now(self, cut: Cut) -> Iterator[LastingChoice]:
        """Return the write that a rank was making when it was killed: its first pages."""
        happened = self.changes.of_entries(cut.entries)
        for number in bits(happened & self.changes.kinds["data"]):
            entry = self.changes.every[number].entry
            if cut.last >> entry & 1 and self.log.entries[entry].event not in self.acks:
                for choice in tears(self.changes, number, happened, self.model.page):
                    if choice.torn is not None and choice.torn[1] == 0:
                        yield choice

    def _lossy(self, cut: Cut) -> Iterator[LastingChoice]:
        key = (cut.reached, cut.entries & self._syncs)
        if cut not in self._watersheds and not (cut.apart and key in self._cut_short):
            return
        legal = self.limits.after(cut.entries)
        if self.candidates > MOST:
            self.skipped += 1
            return
        most = self.most // APART if cut.apart else self.most
        everything = list(islice(self.limits.choices(legal), most + 1))
        if len(everything) > most:
            self.bounded += 1
            self._cut_short.add(key)
            everything = list(bounded(self.limits, legal))
        yield from (each for each in everything if self.possible.allows(cut.entries, each.lasts))
        yield from self._torn(legal)

    def _torn(self, legal: Legal) -> Iterator[LastingChoice]:
        """Yield the last write to each file that no fsync covers."""
        for own in self.changes.of_inode.values():
            data = own & self.changes.kinds["data"] & legal.happened & ~legal.must
            if data:
                yield from tears(self.changes, data.bit_length() - 1, legal.happened, self.model.page)
