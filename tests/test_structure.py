"""The module map at the top of the package is true: imports go down it, and only ranks import torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import racecheck

PACKAGE = Path(racecheck.__file__).parent


def layers() -> list[set[str]]:
    """The map's lines: the modules of a line may import one another and those of the lines below."""
    assert racecheck.__doc__ is not None
    rows = [line for line in racecheck.__doc__.splitlines() if line.startswith("    ")]
    return [{name.strip() for name in row[4:24].split(",")} for row in rows]


def imported(file: Path) -> Iterator[tuple[str, bool]]:
    """The names of imported modules, and whether they are imported for type checking only."""
    tree = ast.parse(file.read_text())
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, node in guarded) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node in guarded
            if node.module == "racecheck":
                yield from ((f"racecheck.{each.name}", node in guarded) for each in node.names)


def level(module: str) -> int:
    return next(number for number, names in enumerate(layers()) if module in names)


def test_every_module_is_on_the_map() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__", "__main__"} == set().union(*layers())


def test_imports_go_down_the_map() -> None:
    upward = []
    for file in PACKAGE.rglob("*.py"):
        own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in {"__init__", "__main__"}:
            continue
        for name, for_types in imported(file):
            parts = name.split(".")
            known = len(parts) > 1 and parts[0] == "racecheck" and parts[1] in set().union(*layers())
            if known and not for_types and level(parts[1]) < level(own):
                upward.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert not upward


def test_only_what_runs_in_ranks_imports_torch() -> None:
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        for name, _ in imported(file)
        if name.split(".")[0] == "torch" and "checkpointers" not in file.parts
    }
    ranks = {"world/early.py", "world/hooks.py", "world/stores.py", "world/weights.py"}
    others = {"world/contents.py", "world/formats.py", "probes.py"}
    assert found == ranks | others, "(files are read, and torch is tried, in processes of their own)"


def test_the_command_line_knows_checkpointers_without_torch() -> None:
    """Adapters import what they wrap where they use it."""
    code = "import sys; from racecheck import targets, checkpointers as c;"
    code += "[targets.checkpointer(each) for each in c.NAMES]; print(*(set(sys.modules) & {'torch', 'numpy'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
