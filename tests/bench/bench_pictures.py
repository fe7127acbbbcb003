"""How fast a page is in Chromium: ``python tests/bench/bench_pictures.py``.

For each page it prints the size, the median (and worst) first paint and time until the lanes are there, and the frames
of a scroll through all of it, unfolded.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from racecheck.report.picture.document import page
from tests.support import pictures
from tests.support.browser import browser, showing, wait_for

SCROLL = """() => new Promise(done => {
  const frames = [], end = document.documentElement.scrollHeight - innerHeight;
  let last = performance.now(), y = 0;
  scrollTo(0, 0);
  const step = now => {
    frames.push(now - last);
    last = now;
    y += 180;
    scrollTo(0, Math.min(y, end));
    frames.length < 360 && y < end ? requestAnimationFrame(step) : done(frames.slice(2));
  };
  requestAnimationFrame(step);
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
READY = "performance.getEntriesByName('ready')[0].startTime"
PAGES = {"race": pictures.race, "64 ranks, 5,000 ops": lambda: pictures.large(64, 5000)}
PAGES["64 ranks, 20,000 ops"] = lambda: pictures.large(64, 20_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    with browser() as opened, tempfile.TemporaryDirectory() as folder:
        for name, make in PAGES.items():
            file = Path(folder) / "picture.html"
            file.write_text(page(make(), "racecheck replay finding.json"), "utf-8")
            paints, readies, frames = [], [], []
            for _ in range(times):
                with showing(opened, file) as shown:
                    wait_for(shown, "performance.getEntriesByName('first-contentful-paint').length === 1")
                    paints.append(shown.evaluate(PAINT))
                    readies.append(shown.evaluate(READY))
                    shown.keyboard.press("e")
                    shown.wait_for_timeout(300)
                    frames += shown.evaluate(SCROLL)
            seen = [f"{statistics.median(each):.0f} ms ({max(each):.0f})" for each in (paints, readies)]
            slow = f"worst frame {max(frames):.0f} ms, {sum(each > 50 for each in frames)} of {len(frames)} over 50 ms"
            print(f"{name}: {file.stat().st_size:,} bytes; first paint {seen[0]}, lanes {seen[1]}; {slow}")


if __name__ == "__main__":
    main()
