"""Today's names for modules that findings and other files of racecheck 0.1.0 call by older names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SUITE = {name: name for name in ("checks", "controls", "protocol", "state")}
_SUITE |= {"driving": "driver", "loads": "load_invariants", "suite": "check_scenario"}
_ADAPTERS = (
    "dcp", "dcp_sharded", "deepspeed", "huggingface", "lightning", "megatron", "orbax", "ray_train", "torch_save",
    "torchsnapshot", "torchtitan", "torchtune",
)  # fmt: skip
MODULES: Mapping[str, str] = {
    "errors": "model.errors",
    **{f"checkpointers.{old}": f"targets.suite.{new}" for old, new in _SUITE.items()},
    **{f"checkpointers.{name}": f"targets.adapters.{name}" for name in _ADAPTERS},
}
_NAMES = {f"racecheck.{old}": f"racecheck.{new}" for old, new in MODULES.items()}
_NAMES |= {f"{old.replace('.', '/')}.py": f"{new.replace('.', '/')}.py" for old, new in _NAMES.items()}
_FORMER = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(_NAMES, reverse=True)))})(?=[.:]|$)")
_NAMING = frozenset({"bases", "file", "target", "type"})
"""Keys whose values name classes, modules or source files.  The bytes and lines of a run stay as they are."""


def current(data: Any) -> Any:
    """Return the JSON data of a finding, search or gate with today's names of racecheck's own modules."""
    if isinstance(data, dict):
        return {key: _renamed(each) if key in _NAMING else current(each) for key, each in data.items()}
    return [current(each) for each in data] if isinstance(data, list) else data


def _renamed(value: Any) -> Any:
    if isinstance(value, str):
        return _FORMER.sub(lambda found: _NAMES[found[0]], value)
    return [_renamed(each) for each in value] if isinstance(value, list) else current(value)
