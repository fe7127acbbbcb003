"""Plain English stays: a spell checker, and constructions that must not return."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = ("racecheck", "scenarios", "tests", "README.md", ".github")

NEVER = {
    r"(?<!-)\banew\b": "again",
    r"\btamest\b": "the default",
    r"\bmends?\b": "a hint, or to fix",
    r"how-manieth": "the number of",
    r"\bso (many|much|long)\b(?! (as|that))": "a number with its noun",
    r"^\W*Who\b.*[^?]$": "a subject: the thread that ...",
    r"[;:] who \w+s\b": "a subject: the thread that ...",
    r"\bgives the (same|text|names?|path|number|result)\b": "returns, or prints",
    r"; gives\b(?! way| up)": "returns",
    r"\bwhat c(omes|ame) of\b": "the result, the outcome",
    r"\bheld against (it|them)\b": "does not count, or is compared with",
    r"\bstale view": "a stale read",
    r"\b([Tt]he|[Rr]eal|[Aa]|own|[Ww]hich|plainest) savers?\b": "a checkpointer",
    r"def test_(who|whose|whom)_": "a subject: a thread that ...",
    r"def test_\w*(nobody|somebody|whoever|_goes_on|_go_on)": "no thread, another rank, continues",
    r"\bfor[ _]ever\b": "forever",
    r"\bcame about\b": "was possible, was made",
    r"\bthere (is|are) no [\w ]+; there (is|are):": "unknown X; known: ...",
}
"""What to write instead, by the construction."""


RATES = {
    r"\bwhat\b": (3.8, "name the thing: the result, the bytes"),
    r"\bwhere\b": (3.7, "if, or when"),
    r"\b(that|those) (of|that|which)\b|\bones? that\b": (3.1, "name the thing"),
}
"""Constructions that are rarer in native English: how often they may be in 1,000 words of docstring, and how to write
it instead.  Lower a bound when it has room; never raise one.
"""


def texts() -> list[Path]:
    found = [ROOT / each for each in PLACES if (ROOT / each).is_file()]
    for place in PLACES:
        found += [each for each in (ROOT / place).rglob("*") if each.suffix in {".py", ".md", ".cff"}]
    return [each for each in sorted(found) if each != Path(__file__) and "__pycache__" not in each.parts]


def where(pattern: str) -> list[str]:
    found = []
    for file in texts():
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if re.search(pattern, line) and not line.lstrip().startswith("import "):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


@pytest.mark.parametrize("pattern", NEVER)
def test_a_construction_that_reads_badly_does_not_return(pattern: str) -> None:
    assert where(pattern) == [], f"write {NEVER[pattern]}"


def test_words_are_spelled_right() -> None:
    """codespell's settings are in pyproject.toml."""
    command = [sys.executable, "-m", "codespell_lib", *PLACES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_word_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("It is re" + "cieved.\n")
    command = [sys.executable, "-m", "codespell_lib", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "==> received" in done.stdout


def docstrings() -> str:
    """All docstrings of the package, those of fields among them."""
    found = []
    for file in (ROOT / "racecheck").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            body = getattr(node, "body", None)
            texts = [each.value for each in body if isinstance(each, ast.Expr)] if isinstance(body, list) else []
            found += [str(each.value) for each in texts if isinstance(each, ast.Constant)]
    return "\n".join(found)


def test_constructions_become_rarer() -> None:
    text = docstrings()
    words = len(re.findall(r"[A-Za-z']+", text))
    for pattern, (most, instead) in RATES.items():
        rate = 1000 * len(re.findall(pattern, text, re.IGNORECASE)) / words
        assert rate <= most, f"{pattern}: {rate:.2f} in 1,000 words; write: {instead}"
