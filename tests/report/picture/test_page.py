"""The page of a finding, as a person sees it in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from racecheck.explore import findings
from racecheck.explore.findings import Finding
from racecheck.model.errors import UsageError
from racecheck.model.nouns import World
from racecheck.report.picture.document import page as drawn
from racecheck.report.picture.document import picture
from tests.support import pictures
from tests.support.browser import browser, showing, wait_for
from tests.support.thumbnails import MOST, SHOTS, difference, path_of, thumbnail

TOLD = [name for name in pictures.ALL if name != "without-trace"]


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as found:
        yield found


def write(finding: Finding, folder: Path) -> Path:
    file = folder / "picture.html"
    file.write_text(drawn(finding, "racecheck replay finding.json"), "utf-8")
    return file


def tree(page: Page) -> str:
    return page.locator(".tree").inner_text() if page.locator(".tree").count() else ""


def is_in_first_view(page: Page, selector: str) -> bool:
    boxes = [each.bounding_box() for each in page.locator(selector).all()]
    assert boxes
    assert page.evaluate("scrollY") == 0
    height = page.viewport_size["height"] if page.viewport_size else 0
    return all(box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height for box in boxes)


@pytest.mark.parametrize("name", TOLD)
def test_what_decides_is_seen_without_scrolling(opened: Browser, tmp_path: Path, name: str) -> None:
    with showing(opened, write(pictures.ALL[name](), tmp_path)) as page:
        assert is_in_first_view(page, "h1, .beat .what, .repair")
        for line in page.locator(".beat .source-line").all():
            code = "" if name == "earlier" else " \\S"
            assert re.match(rf"line (8|9|10|11){code}", line.inner_text()), "the user's line of code"


def test_the_order_that_passes_stands_beside_the_one_that_fails(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.race(), tmp_path)) as page:
        fails, passes = page.locator(".cards .card").all()
        looked = "stat ckpt\nfile"
        removed, made = "rmdir ckpt\nok", "mkdir ckpt\nok"
        assert fails.locator(".call").all_inner_texts() == [looked, removed, "rmdir ckpt\n✕ ENOENT", made]
        assert passes.locator(".call").all_inner_texts() == [looked, removed, made, removed]
        assert page.locator(".story svg path.tip").count() == 2, "an arrow each"
        colour = "getComputedStyle(document.querySelector('.beat .what.is-{}')).borderLeftColor"
        assert page.evaluate(colour.format("bad")) == "rgb(179, 64, 10)", "what fails"
        assert page.evaluate(colour.format("key")) == "rgb(11, 98, 176)", "what decides"
        said = page.locator("#repair").inner_text()
        assert "With rank 1's mkdir ckpt (train.py:11) before rank 0's rmdir ckpt (train.py:10)" in said
        page.get_by_role("button", name="Passing").click()
        assert page.locator(".row .differs").count() == 1


def test_a_fold_opens_and_closes(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.race(), tmp_path)) as page:
        before = page.locator(".row").count()
        fold = page.locator(".row.fold").first
        assert "3 ops" in fold.inner_text()
        fold.click()
        assert page.locator(".row").count() == before + 3
        assert page.locator(".row.fold").first.get_attribute("aria-expanded") == "true"
        page.locator("#rows").press("Enter")
        assert page.locator(".row").count() == before
        page.keyboard.press("e")
        assert all("▾" in each for each in page.locator(".row.fold").all_inner_texts())


def test_the_tree_changes_with_the_step(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.power_loss(), tmp_path)) as page:
        page.locator(".row", has_text="open new.pt").click()
        assert tree(page).split() == ["+", "new.pt", "0", "B", "rank", "0,", "step", "2"]
        page.keyboard.press("j")
        assert page.locator(".tree .changed .name").all_inner_texts() == ["new.pt"]
        assert "1.5 kB" in tree(page)
        page.keyboard.press("j")
        assert page.locator(".tree .gone .name").all_inner_texts() == ["new.pt"]
        assert page.locator(".tree .new .name").all_inner_texts() == ["model.pt"]
        page.locator(".row.crash").click()
        assert page.locator(".tree .gone .name").all_inner_texts() == ["model.pt"], "the crash took the rename"
        assert "as recorded, after the crash" in page.locator("#side").inner_text()


def test_keys_lead_to_the_next_switch_and_the_next_decisive_op(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.race(), tmp_path)) as page:
        where = page.locator("#where")
        assert where.inner_text() == "Step 14 of 15"
        page.keyboard.press("d")
        assert where.inner_text() == "Step 15 of 15"
        page.keyboard.press("Shift+D")
        page.keyboard.press("Shift+D")
        assert where.inner_text() == "Step 13 of 15"
        page.keyboard.press("Shift+N")
        assert where.inner_text() == "Step 9 of 15", "in a fold, which has opened"
        page.keyboard.press("n")
        assert where.inner_text() == "Step 10 of 15"


def test_search_finds_paths_calls_and_ranks(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.race(), tmp_path)) as page:
        for text, found in (
            ("rmdir", "2 matches"),
            ("ENOENT", "1 match"),
            ("rank 1", "8 matches"),
            ("nothing", "0 matches"),
        ):
            page.locator("#find").fill(text)
            assert page.locator("#hits").inner_text() == found
        page.locator("#find").fill("stat")
        page.locator("#find").press("Enter")
        assert page.locator("#where").inner_text() == "Step 1 of 15"


def test_a_node_is_shown_what_it_still_sees(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.stale(), tmp_path)) as page:
        assert "node 1 sees: none (stale)" in tree(page)
        assert "a stale answer: no entry (cached 0.0 s ago)" in page.locator("#side").inner_text()


def test_what_a_recovery_meets_is_a_table(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.mixed(), tmp_path)) as page:
        rows = [each.split("\t") for each in page.locator(".cards tbody tr").all_inner_texts()]
        assert rows[0][:3] == ["ckpt/0.pt", "rank 0, op 7", "step 2"]
        assert rows[1][:3] == ["ckpt/1.pt", "rank 1, op 4", "step 1"]
        assert page.locator(".cards td.tag.key").count() == 2, "files of two saves in one directory"
        assert page.locator(".row.world").count() == 1


def test_each_node_has_a_column(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.node_local(), tmp_path)) as page:
        assert page.locator(".cards tbody tr").first.inner_text().split() == ["ckpt/.metadata", "✓", "✕", "none"]


def test_the_advice_fits_the_storage() -> None:
    apart = pictures.node_local()
    shared = replace(apart, outcome=replace(apart.outcome, world=World(ranks=2, nodes=2)))
    said = [picture(each, "")["advice"][1] for each in (apart, shared)]
    assert said[0].startswith("save to storage that all nodes share")
    assert said[1].startswith("write to a new name")


def test_repairs_that_were_tried_are_a_table(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.power_loss(), tmp_path)) as page:
        rows = [each.split("\t") for each in page.locator("#repair tr").all_inner_texts()]
        assert rows[1:] == [["fsync files", "none", "none"], ["as it is", "30", "none"]]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
@pytest.mark.parametrize("name", pictures.ALL)
def test_nothing_sticks_out_and_nothing_decisive_is_hidden(
    opened: Browser, tmp_path: Path, name: str, theme: str, width: int
) -> None:
    with showing(opened, write(pictures.ALL[name](), tmp_path), width=width, theme=theme) as page:
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        hidden = "run.worlds.flatMap(w => w.events.filter(e => e.role && rows[e.row].type === 'fold')).length"
        assert page.evaluate(hidden) == 0


def test_on_paper_all_rows_are_there(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.large(8, 600), tmp_path)) as page:
        page.keyboard.press("e")
        some, rows = page.locator(".row").count(), page.evaluate("rows.length")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert some < page.locator(".row").count() == rows
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".row").count() < rows


def test_a_screen_reader_is_told_the_step(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.race(), tmp_path)) as page:
        page.locator("#rows").focus()
        page.keyboard.press("ArrowDown")
        chosen = page.locator(f"#{page.locator('#rows').get_attribute('aria-activedescendant')}")
        assert chosen.get_attribute("aria-selected") == "true"
        said = "step 15, rank 1, mkdir ckpt, ok, one of the pair whose order decides"
        assert chosen.locator(".unseen").text_content() == said == page.locator("#live").text_content()
        assert chosen.locator(".drawn").get_attribute("aria-hidden") == "true", "it is said once"


# Bad input.


def test_hostile_text_is_only_shown(opened: Browser, tmp_path: Path) -> None:
    file = write(pictures.hostile(), tmp_path)
    with showing(opened, file) as page:
        assert page.title() == f"{pictures.HOSTILE[0]} - racecheck"
        assert page.locator("script").count() == 3, "the data, the finding and the program"
        assert page.locator("img").count() == 0
        page.keyboard.press("e")
        for _ in range(12):
            page.keyboard.press("k")
        shown = page.locator("body").inner_text()
        assert not re.search("[\\x00-\\x08\\x0b-\\x1f\\x7f\u200b\u202e\ufeff\ud800-\udfff]", shown)
        assert "\\u202e" in shown
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", file.read_bytes())


def test_a_finding_without_a_trace_says_so(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.without_trace(), tmp_path)) as page:
        assert "the finding has no trace" in page.locator("#foot").inner_text()
        assert "raised FileNotFoundError: gone" in page.locator("#cards").inner_text()


def test_a_finding_of_an_earlier_version_says_what_it_lacks(opened: Browser, tmp_path: Path) -> None:
    with showing(opened, write(pictures.earlier(), tmp_path)) as page:
        assert "an earlier racecheck made this finding" in page.locator("#foot").inner_text()
        assert "the finding has no source text" in page.locator("#side").inner_text()


# Size and speed.


def test_a_small_finding_is_a_small_page(tmp_path: Path) -> None:
    assert write(pictures.race(), tmp_path).stat().st_size < 100_000


def test_a_page_carries_its_finding(opened: Browser, tmp_path: Path) -> None:
    finding = pictures.race()
    file = write(finding, tmp_path)
    assert findings.load(file) == finding
    with showing(opened, file) as page:
        with page.expect_download() as waiting:
            page.locator("#save").click()
        assert re.fullmatch(r"[\w-]+\.json", waiting.value.suggested_filename)
        assert findings.load(Path(waiting.value.path())) == finding


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((findings.CARRIES, "<script>"), "this page carries no finding"),
        ((f"{findings.CARRIES}H4sI", f"{findings.CARRIES}AAAA"), "the finding in this page is damaged"),
    ],
)
def test_a_page_without_a_whole_finding_is_a_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    file = write(pictures.race(), tmp_path)
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(UsageError, match=said):
        findings.load(file)


def test_a_finding_in_a_page_may_not_be_larger_than_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(pictures.race(), tmp_path)
    monkeypatch.setattr(findings.given_files, "LARGEST", file.stat().st_size // 100)
    with pytest.raises(UsageError, match="is larger than"):
        findings._carried(file.read_text())


def test_an_address_names_a_step(opened: Browser, tmp_path: Path) -> None:
    file = write(pictures.race(), tmp_path)
    with showing(opened, file) as page:
        assert "#step" not in page.url
        page.locator("#rows").focus()
        page.keyboard.press("ArrowDown")
        address = page.url
        assert re.search(r"#step-\d+$", address)
        said = page.locator("#live").text_content()
        page.keyboard.press("Home")
        assert page.locator("#live").text_content() != said
        page.evaluate(f"location.hash = '{address.partition('#')[2]}'")
        wait_for(page, f"document.getElementById('live').textContent === {json.dumps(said)}")


def test_a_large_run_stays_light(opened: Browser, tmp_path: Path) -> None:
    """64 ranks and 5,000 ops: only what is near the window is in the document, and a jump takes one frame."""
    file = write(pictures.large(64, 5000), tmp_path)
    assert file.stat().st_size < 1_500_000
    with showing(opened, file) as page:
        page.keyboard.press("e")
        assert page.evaluate("rows.length") > 5000
        move = "scrollTo(0, Math.random() * document.body.scrollHeight); paint();"
        jump = f"() => {{ const t = performance.now(); {move} return performance.now() - t; }}"
        times = sorted(page.evaluate(jump) for _ in range(40))
        assert times[20] < 50
        assert page.evaluate("document.querySelectorAll('*').length") < 4000


def test_the_data_of_a_page_is_json_without_markup(tmp_path: Path) -> None:
    text = write(pictures.hostile(), tmp_path).read_text("utf-8")
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    assert "<" not in match[1]
    assert json.loads(match[1])["verdict"] == "FAIL"


# Golden pictures.


@pytest.mark.parametrize(("name", "theme", "width"), SHOTS)
def test_a_page_looks_as_it_did(opened: Browser, name: str, theme: str, width: int) -> None:
    golden = Image.open(path_of(name, theme, width)).convert("RGB")
    assert difference(thumbnail(opened, name, theme, width), golden) < MOST


def test_golden_pictures_are_told_apart() -> None:
    """A page in place of another fails, also one in the other theme."""
    golden = [Image.open(path_of(*each)).convert("RGB") for each in SHOTS]
    found = [difference(one, other) for one, other in combinations(golden, 2)]
    assert min(found) > MOST
