"""``python -m racecheck`` is the command line."""

import sys

from racecheck.cli import main

sys.exit(main())
