"""A finding as Markdown, read by a parser of Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from racecheck.report.markdown import code, markdown
from tests.support import pictures

REPLAY = "racecheck replay finding.json"
ALL = {**pictures.ALL, "hostile": pictures.hostile}
LINES = (
    "accDescr: .*", r"participant \w+ as [\w ]+", r"rect rgba\(.*\)", "end", r"Note over [\w,]+: .*",
    r"R\d+-(>>|x)D: .*",
)  # fmt: skip
ALLOWED = {
    "text", "code_inline", "strong_open", "strong_close", "softbreak", "html_inline",
}  # fmt: skip


def tokens(text: str) -> list[Token]:
    return MarkdownIt("gfm-like", {"linkify": False}).parse(text)


def inline(text: str) -> list[Token]:
    return [child for each in tokens(text) for child in each.children or ()]


def test_a_race_can_be_pasted() -> None:
    assert (
        markdown(pictures.race(), REPLAY)
        == """\
**FAIL** `scenarios/train.py::save`

Rank 1 did `rmdir ckpt` (line 10), and then rank 0's `rmdir ckpt` (line 10) failed with ENOENT.

* `no-file-errors`: `FileNotFoundError on rank 0: ckpt`

```mermaid
sequenceDiagram
  accDescr: Rank 1 did rmdir ckpt (line 10), and then rank 0#39;s rmdir ckpt (line 10) failed with ENOENT.
  participant R0 as rank 0
  participant R1 as rank 1
  participant D as directory
  Note over R0,R1: 8 more events
  rect rgba(240, 147, 90, 0.25)
    R0->>D: 9 stat ckpt file
  end
  Note over R0,R1: 3 more events
  rect rgba(240, 147, 90, 0.25)
    R1->>D: 13 rmdir ckpt ok
  end
  rect rgba(240, 147, 90, 0.25)
    R0-xD: 14 rmdir ckpt ENOENT
  end
  rect rgba(240, 147, 90, 0.25)
    R1->>D: 15 mkdir ckpt ok
  end
```

* 9, rank `0`: `project/train.py:9` `if ckpt.exists():`
* 13, rank `1`: `project/train.py:10` `shutil.rmtree(ckpt)`
* 14, rank `0`: `project/train.py:10` `shutil.rmtree(ckpt)`
* 15, rank `1`: `project/train.py:11` `ckpt.mkdir()`

It passes if rank 1's `mkdir ckpt` (step 15, line 11) comes before rank 0's `rmdir ckpt` (step 14, line 10), as one run did.

* Replay: `racecheck replay finding.json`
* World: 2 ranks, 1 node, `shared` storage
* Run: seed `0`, schedule 3
* Versions: `racecheck 0.1.0, Python 3.11.7, torch 2.13.0, Linux 6.1.0`
"""  # noqa: E501
    )


@pytest.mark.parametrize("name", ALL)
def test_what_comes_from_outside_is_no_markup(name: str) -> None:
    for token in inline(markdown(ALL[name](), REPLAY)):
        assert token.type in ALLOWED
        assert token.type != "html_inline" or token.content == "<!-- -->"
    kinds = {each.type for each in tokens(markdown(ALL[name](), REPLAY))}
    assert not kinds & {"html_block", "heading_open", "blockquote_open"}


@pytest.mark.parametrize("name", ALL)
def test_it_is_short_and_printable(name: str) -> None:
    text = markdown(ALL[name](), REPLAY)
    assert len(text) < 4000
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u200b\u202e\ud800-\udfff]", text)
    assert f"`{REPLAY}`" in text


@pytest.mark.parametrize("name", [each for each in ALL if each != "without-trace"])
def test_a_diagram_has_lines_of_three_kinds_only(name: str) -> None:
    """Words that Mermaid would read as its own are written as codes (all findings here were drawn with Mermaid 11)."""
    drawn = re.findall(r"```mermaid\nsequenceDiagram\n(.*?)\n```", markdown(ALL[name](), REPLAY), re.DOTALL)
    assert len(drawn) == 1
    for line in drawn[0].splitlines():
        assert re.fullmatch(rf" +({'|'.join(LINES)})", line)
        said = line.partition(": ")[2]
        assert re.fullmatch(r"([\w ._/,()=-]|#\d+;)*", said)
        assert not re.search(r"\bend\b", said)


def test_a_large_run_is_a_table() -> None:
    text = markdown(pictures.large(16, 2000), REPLAY)
    assert "mermaid" not in text
    assert [each.type for each in tokens(text)].count("table_open") == 1
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) < 45
    assert rows[-1].startswith("| **2000** | `15` | `open checkpoints/step-")
    assert "| `ENOENT` | `project/train.py:11` |" in rows[-1]


def test_a_message_mentions_no_one_and_refers_to_nothing() -> None:
    made = pictures.without_trace()
    said = replace(made.judgement.violations[0], message="@someone broke owner/name#12 with *stars*")
    text = markdown(replace(made, judgement=replace(made.judgement, violations=(said,))), REPLAY)
    assert "@<!-- -->someone broke owner/name#<!-- -->12 with \\*stars\\*." in text


@pytest.mark.parametrize("text", ["", "`", "``a`", "a`b``c", "a|b", "[x](y)", "@someone", "a\nb", *pictures.HOSTILE])
def test_a_code_span_holds_any_text(text: str) -> None:
    found = inline(code(text))
    assert [each.type for each in found] == ["code_inline"]
