"""Refresher: keeps the mirror up to date by schedule, never because of what is read.

    ON        when it is switched on, then every `interval` seconds; every `FILLING_SECONDS` in the first two minutes
              while there are sources without a message, as before a server that is fetching its feeds
    OFF       only when a program polls feed addresses and the mirror is older than that
    always    when the button is pressed

Nothing here depends on what is opened, in what order or how often, so the server learns when the mirror is refreshed
and nothing else. While the server does not answer, it is asked again every `REFRESH_RETRY_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from onoff.client import MirrorClient, Refresh
from onoff.client.refreshing import NoChanges
from onoff.errors import MirrorError, OnOffError, ServerUnreachable
from onoff.gateway.board import Board
from onoff.wire import WireMessage

INTERVAL: Final = 300.0
REFRESH_RETRY_SECONDS: Final = 5.0
REFRESHER_LOOK_SECONDS: Final = 1.0
FILLING_SECONDS: Final = 5.0
FILLING_FOR: Final = 120.0
"""Seconds from the start for which a server may be taken to be filling its store."""
PATIENCE: Final = 60.0
"""Seconds that a reader waits for the first refresh, or a feed reader for one that is due."""


class Refresher:
    """Refreshes a mirror in its own thread.

    Parameters
    ----------
    refresh
        Brings the mirror up to date. After it the server is asked how many bytes change in an hour (`per_hour`).
    mirror
        What is refreshed.
    interval
        Seconds between two refreshes while ON.
    private
        Whether the switch is ON now.
    refreshed
        Called with each refresh, or with the error that prevented it.
    board
        Notified of every refresh.
    """

    def __init__(
        self,
        refresh: Callable[[], Refresh],
        mirror: MirrorClient,
        interval: float,
        private: Callable[[], bool],
        refreshed: Callable[[Refresh | OnOffError], None],
        board: Board,
    ) -> None:
        self.mirror, self.interval = mirror, interval
        self.supported = True
        self.problem: OnOffError | None = None
        self.per_hour: int | None = None
        self._refresh, self._private, self._refreshed, self._board = refresh, private, refreshed, board
        self._news = threading.Condition()
        self._begun = 0  # attempts
        self._done = 0  # those that ended, whether or not they succeeded
        self._asked = 0  # the attempt that is waited for, counted as in `_done`
        self._retry_at = 0.0
        self._closed = False
        self._prepared = threading.Event()
        self._incomplete = False  # sources without a message
        self._filled_by = time.monotonic() + FILLING_FOR
        self._thread = threading.Thread(target=self._work, name="onoff-refresh", daemon=True)
        self._thread.start()

    # -- for other threads ----------------------------------------------------------------------------------

    def refresh_soon(self) -> int:
        """Refresh as soon as possible, also if a refresh is under way: it may miss what was published meanwhile.

        Returns the number of the attempt, for `wait`.
        """
        with self._news:
            return self._ask_for(self._begun + 1)

    def _ask_for(self, attempt: int) -> int:
        self._asked = max(self._asked, attempt)
        self._news.notify_all()
        return attempt

    def wait(self, attempt: int) -> None:
        """Wait until that attempt was made. Raises its error, or ServerUnreachable after `PATIENCE` seconds."""
        with self._news:
            self._news.wait_for(lambda: self._done >= attempt or self._closed, PATIENCE)
            if self._done < attempt:
                raise ServerUnreachable("the mirror was not refreshed in time", hint="try again later")
            if self.problem is not None:
                raise self.problem

    def wait_for_first(self) -> None:
        """Wait until there is something to read. Causes no refresh: the schedule does. Raises as `wait` does."""
        self._prepared.wait(PATIENCE)
        if self.mirror.mirror.edition is None:
            self.wait(1)

    def wait_until_fresh(self) -> None:
        """For programs that poll whatever the person wants: refresh if the mirror is older than the interval.

        If that fails, an older copy is better than none; raises where there is none.
        """
        with self._news:  # else a refresh that ends between look and question would be followed by another
            if not self._due():
                return
            attempt = self._ask_for(self._done + 1)  # one that is under way will do
        try:
            self.wait(attempt)
        except OnOffError:
            if self.mirror.mirror.edition is None:
                raise

    def as_dict(self) -> dict[str, Any]:
        """What the page shows of it."""
        mirror = self.mirror.mirror
        edition, problem = mirror.edition, self.problem  # once: the thread that refreshes sets them
        return {
            "supported": self.supported,
            "edition": None if edition is None else edition.number,
            "refreshed": mirror.refreshed,
            "interval": self.interval,
            "bytes": mirror.size,
            "used_today": self.mirror.used_today,
            "problem": None if problem is None else problem.message,
        }

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()

    # -- the thread ----------------------------------------------------------------------------------------

    def _due(self) -> bool:
        age = self.mirror.age
        return age is None or age >= self._pause

    @property
    def _pause(self) -> float:
        """Seconds between two refreshes now."""
        filling = self._incomplete and time.monotonic() < self._filled_by
        return min(self.interval, FILLING_SECONDS) if filling else self.interval

    def _work(self) -> None:
        self._prepare()
        while self._wait_until_wanted():
            self._attempt()

    def _prepare(self) -> None:
        """Hand over the copies of the last run, as if they had arrived now."""
        try:
            if self.mirror.arrived is not None:
                self.mirror.arrived(list(self._copies()))
        except Exception as error:
            self.problem = self._shown(error)
        self._prepared.set()

    def _copies(self) -> Iterator[tuple[str, WireMessage]]:
        mirror = self.mirror.mirror
        for name in tuple(mirror.entries):
            with suppress(MirrorError):  # one that is damaged does not touch the others
                yield name, mirror.message(name)[0]

    def _shown(self, error: Exception) -> OnOffError:
        """The error as the page shows it."""
        return error if isinstance(error, OnOffError) else self._board.bug(error)

    def _wait_until_wanted(self) -> bool:
        """Sleep until it is time to refresh; False when it is closed."""
        with self._news:
            while not self._closed:
                try:
                    if self._wanted():
                        self._begun += 1
                        return True
                    patience = self._patience()
                except Exception as error:  # such as a mirror that cannot be opened again, on a full disk
                    self.problem, patience = self._shown(error), REFRESH_RETRY_SECONDS
                self._news.wait(patience)
            return False

    def _wanted(self) -> bool:
        """Whether to refresh now: it was asked for, or the switch is ON and the interval is over."""
        if self._asked > self._done:
            return True
        if not (self.supported and self._private()):
            return False
        return self._due() if self.problem is None else time.monotonic() >= self._retry_at

    def _patience(self) -> float:
        """Seconds to sleep at most; `refresh_soon` wakes the thread at once."""
        age = self.mirror.age
        return REFRESHER_LOOK_SECONDS if age is None else max(0.01, min(REFRESHER_LOOK_SECONDS, self._pause - age))

    def _attempt(self) -> None:
        outcome: Refresh | OnOffError
        problem: OnOffError | None = None
        try:
            outcome = self._refresh()
            self._incomplete = not all(state.version for state in self.mirror.sources())
            self.per_hour = self.mirror.changed_per_hour()  # at every refresh: independent of what is read
        except NoChanges as error:
            outcome = problem = error
            self.supported = False
        except Exception as error:  # else the mirror would stay as it is for good, and nobody would know
            outcome = problem = self._shown(error)
        with self._news:
            self._done += 1
            self.problem = problem
            self._retry_at = time.monotonic() + REFRESH_RETRY_SECONDS
            self._news.notify_all()
        self._refreshed(outcome)
        self._board.changed()
