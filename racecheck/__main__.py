"""``python -m racecheck`` is the command line."""

import sys

from racecheck.frontends.cli.main import entry

sys.exit(entry())
