"""Results without durations, which differ from run to run."""

from __future__ import annotations

import re
from typing import Any

_SECONDS = re.compile(r"\d+(\.\d+)? (s|seconds)\b")


def timeless(data: Any) -> Any:
    """Return JSON data without durations, which its texts have, too."""
    if isinstance(data, dict):
        return {name: timeless(each) for name, each in data.items() if name != "seconds"}
    if isinstance(data, str):
        return _SECONDS.sub("# s", data)
    return [timeless(each) for each in data] if isinstance(data, list) else data
