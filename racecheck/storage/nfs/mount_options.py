"""The mount options of NFS that the model knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from racecheck.storage import options
from racecheck.storage.options import Option


@dataclass(frozen=True, slots=True)
class MountSettings:
    """Mount options, as nfs(5) has them; ``server_async`` is the export's (exports(5)) and matters to crashes."""

    vers: int = 4
    acregmin: float = 3.0
    acregmax: float = 60.0
    acdirmin: float = 30.0
    acdirmax: float = 60.0
    lookupcache: str = "all"
    cto: bool = True
    noac: bool = False
    sync: bool = False
    server_async: bool = False


OPTIONS: Mapping[str, Option] = {
    "vers": options.one_of("vers", {"3": 3, "4": 4, "4.0": 4, "4.1": 4, "4.2": 4}),
    "acregmin": options.seconds("acregmin"),
    "acregmax": options.seconds("acregmax"),
    "acdirmin": options.seconds("acdirmin"),
    "acdirmax": options.seconds("acdirmax"),
    "actimeo": options.seconds("acregmin", "acregmax", "acdirmin", "acdirmax"),
    "lookupcache": options.one_of("lookupcache", {"all": "all", "pos": "pos", "positive": "pos", "none": "none"}),
    "cto": Option(("cto",)),
    "nocto": Option(("cto",), False),
    "ac": Option(("noac",), False),
    "noac": Option(("noac", "sync")),
    "sync": Option(("sync",)),
    "async": Option(("sync",), False),
    "server": options.one_of("server_async", {"sync": False, "async": True}),
}
