"""The invariant of files that several ranks use: no reader sees half a file, and no two writers mix theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from racecheck.invariants.open_files import TracedFile, Use, by_inode, end, mixes, mixture
from racecheck.model.nouns import Outcome, Returned, Violation


def no_torn_files(outcome: Outcome) -> Iterator[Violation]:
    """No rank reads a file while another one writes it, and no two ranks or threads write one file at once.

    A torn file is what a reader gets that comes too early: an archive without its end, an empty pointer, half old and
    half new weights.  A mixed file is what two writers leave that both opened it: bytes of both.  A new file that is
    written under another name and renamed has neither.

    No harm is seen in ranks that hold one lock (flock) at the time, in writers that both append, and in writers that
    name the places they write to and keep apart.
    """
    found = [each for files in by_inode(outcome) for each in (*_torn_reads(outcome, files), *_mixtures(files))]
    yield from {each.message: each for each in reversed(found)}.values()  # the first of each kind, file and pair


def _torn_reads(outcome: Outcome, files: Sequence[TracedFile]) -> Iterator[Violation]:
    for reader, writer in permutations(files, 2):
        if reader.rank != writer.rank:
            yield from _torn(outcome, reader, writer)


def _mixtures(files: Sequence[TracedFile]) -> Iterator[Violation]:
    for one, other in combinations(files, 2):
        if mixes(one, other):
            yield Violation("no-torn-files", *mixture(one, other))


# Readers.


def _torn(outcome: Outcome, reader: TracedFile, writer: TracedFile) -> Iterator[Violation]:
    """Return the bytes that a reader got from the middle of a writer's work, if any."""
    for read in reader.reads:
        after = [each for each in writer.changes if each.index > read.index and not each.locks & read.locks]
        has_begun = writer.begins_empty or any(each.index < read.index for each in writer.changes)
        gave_up = writer.closed is None and not isinstance(outcome.results[writer.rank], Returned)
        if writer.first < read.index < end(writer) and has_begun and (after or gave_up):
            how = ", which rank {0} is writing" if after else ", which rank {0} started to write and never finished"
            yield _tear(reader, writer, how, (writer.first, read.index, *(each.index for each in after[:1])))
            return
    for reads in _passes(reader):
        inside = [
            each
            for each in writer.changes
            if reads[0].index < each.index < reads[-1].index
            if not any(each.locks & read.locks for read in reads)
        ]
        if inside:
            how = " in parts, while rank {0} changes it"
            yield _tear(reader, writer, how, (reads[0].index, inside[0].index, reads[-1].index))
            return


def _tear(reader: TracedFile, writer: TracedFile, how: str, events: tuple[int, ...]) -> Violation:
    text = f"torn read: rank {reader.rank} reads {reader.path}{how.format(writer.rank)}"
    return Violation("no-torn-files", text, tuple(sorted((reader.rank, writer.rank))), events)


def _passes(reader: TracedFile) -> Iterator[Sequence[Use]]:
    """Yield the reads of a file in groups that each end at the end of the file: the next read is a new look."""
    run: list[Use] = []
    for read in reader.reads:
        run.append(read)
        if not read.size:
            yield run
            run = []
    if run:
        yield run
