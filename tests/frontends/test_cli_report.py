"""The command line that draws findings."""

from __future__ import annotations

import html
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from racecheck.explore.findings import Finding, encode
from tests.support import pictures
from tests.support.command_line import FILE, Cli

pytestmark = pytest.mark.usefixtures("project")


def stored(name: str = "race") -> Path:
    file = Path("finding.json")
    file.write_text(encode(pictures.ALL[name]()))
    return file


def test_a_page_lies_beside_its_finding(cli: Cli) -> None:
    assert cli("report", stored()) == 0
    assert cli.out == "finding.html\n"
    assert '"racecheck replay finding.json"' in Path("finding.html").read_text()


def test_a_page_goes_where_it_is_asked_for(cli: Cli) -> None:
    assert cli("report", stored(), "-o", "new/race.html") == 0
    assert cli.out == "new/race.html\n"
    assert not Path("finding.html").exists()


@pytest.mark.parametrize("name", pictures.ALL)
def test_every_kind_of_finding_has_a_page(cli: Cli, name: str) -> None:
    assert cli("report", stored(name)) == 0
    assert Path("finding.html").read_text().rstrip().endswith("</html>")


def test_a_page_is_the_same_each_time(cli: Cli) -> None:
    cli("report", stored())
    once = Path("finding.html").read_bytes()
    cli("report", stored())
    assert Path("finding.html").read_bytes() == once


def test_what_is_no_finding_is_one_line(cli: Cli) -> None:
    text = encode(pictures.race())
    for content in ("", "{}", text[: len(text) // 2], "\x00" * 100):
        Path("bad.json").write_text(content)
        assert cli("report", "bad.json") == 2
        assert re.fullmatch(r"racecheck: bad\.json: not a finding: .*\n", cli.err)
        assert not Path("bad.html").exists()
    assert cli("report", "gone.json") == 2
    assert cli.err == "racecheck: gone.json: no such file: use the path that racecheck run printed\n"


def test_a_page_never_replaces_its_finding(cli: Cli) -> None:
    file = stored().rename("finding.html")
    before = file.read_text()
    assert cli("report", file) == 2
    assert cli.err == "racecheck: finding.html is the finding: name another file with -o\n"
    assert file.read_text() == before


def test_what_cannot_be_written_is_one_line(cli: Cli) -> None:
    Path("file").write_text("")
    assert cli("report", stored(), "-o", "file/race.html") == 2
    assert re.fullmatch(r"racecheck: cannot write file/race\.html: .*; name another file with -o\n", cli.err)


def test_a_search_draws_what_it_finds_if_asked_to(cli: Cli) -> None:
    assert cli("run", f"{FILE}::racing", "--html", "race.html", "--explain", 0) == 1
    found = re.findall(r"^Picture: racecheck report (\S+)", cli.out, re.MULTILINE)[0]
    assert f'"racecheck replay {found}"' in Path("race.html").read_text()
    assert cli("report", found) == 0


def test_a_search_that_finds_nothing_draws_nothing(cli: Cli) -> None:
    assert cli("run", f"{FILE}::guarded", "--html", "race.html", "--schedules", 2) == 0
    assert "racecheck: no finding to draw: race.html is not written\n" in cli.err
    assert not Path("race.html").exists()
    Path("file").write_text("")
    assert cli("run", f"{FILE}::guarded", "--html", "file/race.html") == 2
    assert cli.err.startswith("racecheck: cannot write file/race.html: ")


def test_a_trace_lies_beside_its_finding(cli: Cli) -> None:
    assert cli("trace", stored()) == 0
    assert cli.out == "finding.trace.json\n"
    assert json.loads(Path("finding.trace.json").read_text())["otherData"]["verdict"] == "FAIL"
    assert cli("trace", stored(), "-o", "finding.json") == 2
    assert cli.err == "racecheck: finding.json is the finding: name another file with -o\n"


def test_markdown_is_printed_or_written(cli: Cli) -> None:
    assert cli("report", stored(), "--markdown") == 0
    text = cli.out
    assert text.startswith("**FAIL** `scenarios/train.py::save`")
    assert "`racecheck replay finding.json`" in text
    assert cli("report", stored(), "--markdown", "-o", "issue.md") == 0
    assert cli.out == "issue.md\n"
    assert Path("issue.md").read_text() == text


def below(name: str, finding: Finding) -> Path:
    file = Path(".racecheck") / name / "1234567890.json"
    file.parent.mkdir(parents=True)
    file.write_text(encode(finding))
    return file


def test_all_findings_are_listed_and_drawn(cli: Cli) -> None:
    race = below("race", pictures.race())
    stale = pictures.stale()
    assert stale.evidence is not None
    below("stale", replace(stale, evidence=replace(stale.evidence, made="2026-11-27T00:00:00+00:00")))
    below("earlier", pictures.earlier())
    below("damaged", pictures.race()).write_text("{")
    below("other", pictures.race()).write_text('{"format": "racecheck-search"}')
    assert cli("report", "--all") == 0
    assert cli.out == ".racecheck/index.html\n"
    page = Path(".racecheck/index.html").read_text()
    assert "<h1>3 findings</h1>" in page
    links = re.findall(r'<a href="([^"]*)">([^<]*)</a>', page)
    assert [each[0] for each in links] == [f"{name}/1234567890.html" for name in ("stale", "race", "earlier")]
    assert links[1][1] == html.escape(
        "Rank 1 did rmdir ckpt (line 10), and then rank 0's rmdir ckpt (line 10) failed with ENOENT"
    )
    assert all((Path(".racecheck") / each[0]).is_file() for each in links)
    assert ".racecheck/damaged/1234567890.json: not a finding: not JSON" in page
    assert "racecheck-search" not in page
    assert "<script" not in page
    drawn = race.with_suffix(".html")
    drawn.write_text("as it was")
    assert cli("report", "--all") == 0
    assert drawn.read_text() == "as it was", "a page that is newer than its finding stays"
    os.utime(race, ns=(2**62, 2**62))
    assert cli("report", "--all", "-o", "out/list.html") == 0
    assert "</html>" in drawn.read_text()
    assert 'href="../.racecheck/race/1234567890.html"' in Path("out/list.html").read_text()


def test_a_list_shows_hostile_text_as_text(cli: Cli) -> None:
    below("hostile", pictures.hostile())
    assert cli("report", "--all") == 0
    page = Path(".racecheck/index.html").read_text()
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search("[\\x00-\\x09\\x0b-\\x1f\\x7f\u202e]", page)


def test_an_empty_directory_has_an_empty_list(cli: Cli) -> None:
    assert cli("report", "--all") == 0
    assert "No findings yet." in Path(".racecheck/index.html").read_text()


def test_one_finding_or_all_of_them(cli: Cli) -> None:
    assert cli("report") == 2
    assert cli.err.startswith("racecheck: name a finding; ")
    assert cli("report", stored(), "--all") == 2
    assert cli.err == "racecheck: name one finding or use --all, not both\n"
    assert cli("report", "--all", "--markdown") == 2
    assert cli.err == "racecheck: --markdown takes one finding: leave out --all\n"
