"""``python -m racecheck`` is the command line."""

import sys

from racecheck.frontends.cli.main import main

sys.exit(main())
