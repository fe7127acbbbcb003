"""The examples of the README: its marked blocks, and the commands whose output they are.

``python -m tests.support.readme`` writes the output of this machine into the README.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
SHOWN = {"output": "overwrite", "guarded": "guarded"}


def block(name: str, language: str) -> str:
    """The code block after a marker, without its last newline."""
    found = re.search(rf"<!-- {name} -->\n```{language}\n(.*?)\n?```", README.read_text(), re.DOTALL)
    assert found is not None, f"README.md has no block {name}"
    return found.group(1)


def run(name: str, file: str = "test_readme.py") -> str:
    command = [sys.executable, "-m", "racecheck", "run", f"scenarios/{file}::{name}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.rstrip()


if __name__ == "__main__":
    text = README.read_text()
    for marker, scenario in SHOWN.items():
        text = text.replace(f"```text\n{block(marker, 'text')}\n```", f"```text\n{run(scenario)}\n```")
    README.write_text(text)
