"""A rank's side of a check: it calls the checkpointer or the training, and declares its saves, loads and steps."""

from __future__ import annotations

from typing import Any

from racecheck.model.errors import UsageError
from racecheck.targets.scenarios import Rank
from racecheck.targets.suite.protocol import Handle, layout_of, not_for, parts_of


class Driver:
    """A rank of a job with a checkpointer of its own; the watched directory is the root of its checkpoints.

    ``job`` tells the restart of a job from the first start.  ``name`` is the class's; ``may_overwrite``: the
    checkpointer promises that a step can be saved again.
    """

    def __init__(self, rank: Rank, kind: type, job: int = 0) -> None:
        self.rank, self.root = rank, rank.path
        self._job, self._saves = job, 0
        self._parts, self._sharded = parts_of(kind), layout_of(kind) == "sharded"
        self.name, self.may_overwrite = kind.__name__, "overwrite" not in not_for(kind)
        from racecheck.targets.suite import state

        self._states = state
        self._saver: Any = kind()

    def steps(self, first: int = 1) -> range:
        """Return the steps that the check saves, as many as its world says."""
        return range(first, first + self.rank.sizes["steps"])

    def save(self, step: int) -> None:
        """Save a step, and count on it when that has returned."""
        state = self._begin(step)
        self._saver.save(state, self.root, step)
        self.rank.acked(step=step)

    def train(self) -> None:
        """Act on files as a training step does: all ranks exchange gradients, so each has finished its step."""
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.ones(1))

    def begin(self, step: int) -> tuple[int, Handle]:
        """Begin an asynchronous save; the weights change while it is under way."""
        state = self._begin(step)
        handle = self._saver.save_async(state, self.root, step)
        if not callable(getattr(handle, "result", None)):
            raise UsageError(f"{self.name}.save_async returned {handle!r}: it must return an object with result()")
        self._states.train(state)
        return step, handle

    def finish(self, begun: tuple[int, Handle]) -> None:
        """Wait for an asynchronous save, and count on it."""
        step, handle = begun
        handle.result()
        self.rank.acked(step=step)

    def latest(self) -> int | None:
        """Return the step that would be loaded, None if there is none."""
        step = self._saver.latest(self.root)
        if step is not None and not isinstance(step, int):
            raise UsageError(f"{self.name}.latest returned {step!r}: it must return a step or None")
        return step

    def load(self) -> int:
        """Load the newest checkpoint, if there is one; returns its step, 0 for none."""
        if self.latest() is None:
            return 0
        wanted = self._placed(self._states.empty(self._parts))
        loaded = self._saver.load(self.root, wanted)
        if not isinstance(loaded, tuple) or len(loaded) != 2 or not isinstance(loaded[1], int):
            gave = type(loaded).__name__
            if isinstance(loaded, tuple):
                gave = f"({', '.join(type(each).__name__ for each in loaded)})"
            raise UsageError(f"{self.name}.load returned {gave}: it must return (state, step), step an int")
        state, step = loaded[0], int(loaded[1])
        self._check_shapes(state, wanted)
        self.rank.loaded(state, step=step)
        return step

    def _begin(self, step: int) -> Any:
        self._saves += 1
        whole = self._states.made(step, f"{self._job}:{self._saves}", self._parts)
        self.rank.saved(whole, step=step)
        return self._placed(whole)

    def _placed(self, state: Any) -> Any:
        return self._states.sharded(state) if self._sharded else state

    def _check_shapes(self, loaded: Any, wanted: Any) -> None:
        """Raise `UsageError` for a state that is not made like the one that was saved."""
        found, due = self._states.leaves(loaded), self._states.leaves(wanted)
        missing, more = sorted(due.keys() - found.keys()), sorted(found.keys() - due.keys())
        if missing or more:
            what = f"has no {missing[0]}" if missing else f"has {more[0]}, which was never saved"
            raise UsageError(f"the state returned by {self.name}.load {what}")
        for key, tensor in found.items():
            shape = getattr(tensor, "shape", None)
            if shape != due[key].shape:
                was = tuple(shape) if shape is not None else type(tensor).__name__
                raise UsageError(f"{self.name}.load returned {key} as {was}; it was saved as {tuple(due[key].shape)}")


class TrainingDriver:
    """A rank of a job that is a training; the watched directory is the root of its checkpoints."""

    def __init__(self, rank: Rank, kind: type, job: int = 0) -> None:
        self._rank, self._root = rank, rank.path
        self._name, self._job = kind.__name__, job
        self._training: Any = kind()

    def train(self) -> None:
        """Take the steps of the check, and save after each."""
        self._take(range(1, self._rank.sizes["steps"] + 1))

    def _take(self, steps: range) -> None:
        for step in steps:
            self._training.step()
            self._rank.trained(self._training.state(), step=step)
            self._rank.saved({}, step=step)
            self._training.save(self._root, step)
            self._rank.acked(step=step)

    def resume(self) -> int:
        """Load the newest checkpoint and train one step beyond the end, to show that the job still can save.

        Returns the step that was loaded, 0 for none.
        """
        done, most = self._training.load(self._root), self._rank.sizes["steps"]
        if not isinstance(done, int) or not 0 <= done <= most:
            raise UsageError(f"{self._name}.load returned {done!r}: it must return the steps done, from 0 to {most}")
        if done:
            self._rank.loaded({}, step=done)
            self._rank.trained(self._training.state(), step=done)
        self._take(range(done + 1, most + 2))
        return done
