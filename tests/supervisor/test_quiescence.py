"""What counts as quiet: the parts of the question that need no world."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time

from racecheck.supervisor import quiescence


def test_a_thread_that_runs_at_this_moment_may_look_around_by_itself() -> None:
    """gloo's loop, asked while it is awake, is in no call."""
    program = "print(flush=True)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        end = time.monotonic() + 30
        while not quiescence._ticks(busy.pid, busy.pid):
            assert time.monotonic() < end, "it never runs"
    finally:
        busy.kill()
        busy.communicate()


def test_a_thread_that_waits_for_longer_does_not_look_around() -> None:
    epoll = select.epoll()
    sleeper = threading.Thread(target=epoll.poll, args=(60,), daemon=True)
    sleeper.start()
    end = time.monotonic() + 30
    while quiescence._ticks(os.getpid(), sleeper.native_id or 0):
        assert time.monotonic() < end, "it never comes to its wait"
        time.sleep(0.01)  # it needs the GIL to get there
