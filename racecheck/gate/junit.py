"""The result as JUnit XML, as CI servers read it: a test case for each check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from racecheck.gate.baseline import Comparison, line
from racecheck.gate.cells import Cell
from racecheck.model.nouns import Verdict

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def xml(cells: Sequence[Cell], comparison: Comparison) -> str:
    """Return the result as JUnit XML.

    A failure has the interleaving.  A known failure, or one of a promise that nobody made, is skipped with the reason;
    UNKNOWN is an error.  Each case says how much was tried.
    """
    root = ET.Element("testsuites", name="racecheck gate")
    for row in dict.fromkeys(each.row for each in cells):
        own = [each for each in cells if each.row == row]
        suite = ET.SubElement(root, "testsuite", name=_legal(row))
        for cell in own:
            case = ET.SubElement(
                suite, "testcase", classname=_legal(cell.checkpointer), name=cell.check, time=f"{cell.seconds:.3f}"
            )
            _end(case, cell, comparison)
            ET.SubElement(case, "system-out").text = f"tried: {cell.extent}"
        for what in ("failure", "error", "skipped"):
            key = {"failure": "failures", "error": "errors"}.get(what, what)
            suite.set(key, str(len(suite.findall(f"testcase/{what}"))))
        suite.set("tests", str(len(own)))
        suite.set("time", f"{sum(each.seconds for each in own):.3f}")
    ET.indent(root)
    return ET.tostring(root, "unicode", xml_declaration=False) + "\n"


def _end(case: ET.Element, cell: Cell, comparison: Comparison) -> None:
    said = "; ".join(f"{each.invariant}: {each.message}" for each in cell.broken) or cell.why
    if cell.verdict is Verdict.PASS:
        return
    if cell.against:
        _add(case, "skipped", f"not promised: {cell.against}; seen: {said}", "")
    elif cell.verdict is Verdict.UNKNOWN:
        _add(case, "error", said, "")
    elif all(line(cell, each) in comparison.known for each in cell.broken):
        _add(case, "skipped", f"known: {said}", "")
    else:
        _add(case, "failure", said, cell.text)


def _add(case: ET.Element, what: str, message: str, text: str) -> None:
    ET.SubElement(case, what, message=_legal(message)).text = _legal(text)


def _legal(text: str) -> str:
    return _ILLEGAL.sub("?", text)
