"""A scenario that its loaders cannot give a disk of their own.  Not collected by pytest."""

from racecheck.kernel import namespace
from tests.programs import crashing

namespace.stand_in = lambda *_: False

overwriting = crashing.scenario(crashing.in_place, crashing.load, "overwriting")
overwriting.module = __name__
