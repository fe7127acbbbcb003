"""A module that is started with -m, and imports another one of its package."""

from __future__ import annotations

import sys

from package.saving import save

assert __name__ == "__main__"
assert __package__ == "package"
assert sys.argv[1:] == ["--name", "a b"]
save("out")
