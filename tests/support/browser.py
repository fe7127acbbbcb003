"""Pages in a real browser: Chromium, without network."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
)  # fmt: skip


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser; a test that asks for one is skipped where Chromium is not installed."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("Chromium is not installed: apt install chromium, or playwright install chromium")
        opened = playwright.chromium.launch(executable_path=path, args=[*_FLAGS])
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def showing(
    opened: Browser, file: Path, *, width: int = 1280, height: int = 900, theme: str = "light"
) -> Iterator[Page]:
    """A page of a file, ready; on the way out it must have had no error, and must have asked for nothing else."""
    page = opened.new_page(viewport={"width": width, "height": height})
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda said: wrong.append(said.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    address = f"{file.as_uri()}#{theme}"
    try:
        page.goto(address)
        wait_for(page, "performance.getEntriesByName('ready').length === 1")
        yield page
        assert not wrong
        assert [each.partition("#")[0] for each in asked] == [file.as_uri()]
    finally:
        page.close()


def wait_for(page: Page, condition: str) -> None:
    """Wait until a condition holds.  Playwright's own wait evaluates text in the page, whose policy forbids that."""
    end = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(10)
