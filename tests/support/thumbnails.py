"""Small pictures of pages, to compare: they show layout and colours, not fonts.

``python -m tests.support.thumbnails`` draws them again; look at each before you keep it.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image, ImageChops, ImageStat
from playwright.sync_api import Browser

from racecheck.report.picture.document import page
from tests.support import pictures
from tests.support.browser import browser, showing

GOLDEN = Path(__file__).parents[1] / "golden" / "pictures"
SHOTS = [
    *((name, "light", 1280) for name in ("race", "power-loss", "stale", "deadlock", "mixed", "node-local")),
    ("race", "dark", 1280), ("mixed", "dark", 1280), ("race", "light", 390), ("power-loss", "dark", 390),
]  # fmt: skip
_SMALLER = 16
"""The width of a thumbnail's pixel, in pixels of the page."""
MOST = 4.0
"""How far a thumbnail may be from the golden one, as a mean over its pixels, of 255."""


def path_of(name: str, theme: str, width: int) -> Path:
    return GOLDEN / f"{name}-{theme}-{width}.png"


def thumbnail(opened: Browser, name: str, theme: str, width: int) -> Image.Image:
    """The first view of a page, small."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "picture.html"
        file.write_text(page(pictures.ALL[name](), "racecheck replay finding.json"), "utf-8")
        with showing(opened, file, theme=theme, width=width) as shown:
            shot = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
    return shot.resize((shot.width // _SMALLER, shot.height // _SMALLER), Image.Resampling.BOX)


def difference(one: Image.Image, other: Image.Image) -> float:
    """How far two thumbnails are from each other, from 0 to 255."""
    if one.size != other.size:
        return 255.0
    means = ImageStat.Stat(ImageChops.difference(one, other)).mean
    return sum(means) / len(means)


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        for shot_ in SHOTS:
            thumbnail(chromium, *shot_).save(path_of(*shot_))
