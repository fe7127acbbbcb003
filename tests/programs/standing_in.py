"""Goes on in a process that sees no other, and does what its argument says.  Started as a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from racecheck.kernel import namespace, own_processes


def main(what: str) -> int:
    namespace.enter()
    assert own_processes.enter()
    print(os.getpid(), *sorted(int(each) for each in os.listdir("/proc") if each.isdigit()), flush=True)
    got: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, lambda number, _: got.append(number))
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "orphans":
        subprocess.run(["sh", "-c", "setsid sleep 0.2 & setsid sleep 1000 &"], check=True)
    if what in {"waits", "signals"}:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print("waits", flush=True)
        end = time.monotonic() + 60
        while len(got) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        print(*got, flush=True)
    return 7


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
