"""The session of this process: started at first use, replaced after it has failed."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager

from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.sessions.doctor import examination
from racecheck.sessions.session import Session


class Sessions:
    """``uses`` counts uses: the last user finds the disk as it was, unless there was another use since."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self.uses = 0

    @contextmanager
    def use(self) -> Iterator[Session]:
        """Lend the session; raises `CannotRun` if there can be none."""
        self.uses += 1
        if self._session is None:
            self._session = examination.start(config.read().runs)
            atexit.register(self.close)
        try:
            yield self._session
        except UsageError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Have the next use start another session."""
        session, self._session = self._session, None
        atexit.unregister(self.close)
        if session is not None:
            session.close()


HERE = Sessions()
