"""torchsnapshot: ``Snapshot.take``, ``async_take`` and ``restore``, a directory for each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from racecheck.targets.suite.protocol import State


class TorchSnapshot:
    """All is declared as replicated, so the ranks share the writes; the metadata comes last."""

    requires = ("torchsnapshot",)

    def save(self, state: State, root: Path, step: int) -> None:
        from torchsnapshot import Snapshot

        Snapshot.take(str(_directory(root, step)), _application(state), replicated=["**"])

    def save_async(self, state: State, root: Path, step: int) -> Pending:
        from torchsnapshot import Snapshot

        return Pending(Snapshot.async_take(str(_directory(root, step)), _application(state), replicated=["**"]))

    def load(self, root: Path, state: State) -> tuple[State, int]:
        from torchsnapshot import Snapshot

        step = self.latest(root) or 0
        wanted = _application(state)
        Snapshot(str(_directory(root, step))).restore(wanted)
        return {key: dict(each) for key, each in wanted.items()}, step

    def latest(self, root: Path) -> int | None:
        """Return the newest snapshot with metadata, which ``take`` writes when all ranks have written their parts."""
        complete = root.glob("step-*/.snapshot_metadata")
        return max((int(each.parent.name.removeprefix("step-")) for each in complete), default=None)


class Pending:
    """An ``async_take`` under way."""

    def __init__(self, pending: Any) -> None:
        self._pending = pending

    def result(self) -> None:
        self._pending.wait()


def _directory(root: Path, step: int) -> Path:
    return root / f"step-{step}"


def _application(state: State) -> dict[str, Any]:
    from torchsnapshot import StateDict

    return {part: StateDict(**each) for part, each in state.items()}
