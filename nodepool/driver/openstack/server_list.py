# SPDX-License-Identifier: Apache-2.0
"""How Nova lists servers, for the provider's `Inventory` (O-8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.statemachine.inventory import ChangesNotListed
from nodepool.guard import OnError

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.views import Server

#: A wide list asks for changes from so long before the latest one that was seen: services round to seconds, clocks
#: differ.
OVERLAP: Final = timedelta(seconds=5)
#: From one wide list to the next. The lists in between are narrow: they tell again what changed in the latest second.
WIDE_SECONDS: Final = 1.0
#: For so long after a new second was seen a narrow list asks for the second before, too: a change is listed when its
#: transaction has ended, and says when it began.
COMMIT_SECONDS: Final = 0.5
#: Once a narrow list was too narrow, all are wide for so long.
LATE_SECONDS: Final = 60.0


class ServerLists:
    """Lists of the servers of one provider. `list` may be called by several threads, `changes_since` by one at a time.

    In a burst lists come many times a second, and most of what a wide one tells was told before. So most of them are
    narrow. A change that a narrow list did not show, because clocks differ or the cloud is slow, is in the next wide
    one: then the narrow ones are not used for a while.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = monotonic) -> None:
        self._api = api
        self._clock = clock
        #: The latest second that was seen, and when it was seen first.
        self._latest = ""
        self._latest_at = 0.0
        self._next_wide_at = float("-inf")
        self._wide_until = float("-inf")
        #: What a narrow list in place of the next one would ask for; "" = it is not known.
        self._narrow = ""
        #: id -> ``updated``, as last seen.
        self._updated: dict[str, str] = {}

    def list(self, since: str | None) -> list[Server]:
        """All servers of the project (None), or those that changed since a time, deleted ones too. Blocks.

        :param since: as `changes_since` made it.
        :raises ChangesNotListed: the cloud refuses the second.
        """
        with OnError(lambda _: self._widen()):
            try:
                servers = self._api.servers(since)
            except CloudRefused as error:
                if since is None:
                    raise
                raise ChangesNotListed(str(error)) from error
        if since is None:
            # Whatever went before it must be told by the next one, and by no later one.
            self._updated.clear()
            self._widen()
        elif since != self._narrow and self._too_late(servers):
            self._wide_until = self._clock() + LATE_SECONDS
        self._updated.update((server.id, server.updated) for server in servers)
        return servers

    def _widen(self) -> None:
        """The next list of changes is a wide one."""
        self._next_wide_at = float("-inf")

    def changes_since(self, latest: str) -> str | None:
        """The time to ask for changes from, now; None when the latest time that was seen is none.

        :param latest: as Nova writes it.
        """
        now = self._clock()
        if latest != self._latest:
            self._latest, self._latest_at = latest, now
        second = timedelta(seconds=1 if now - self._latest_at < COMMIT_SECONDS else 0)
        narrow = _before(latest, second)
        if narrow is None:
            return None
        self._narrow = narrow
        if self._next_wide_at <= now or now < self._wide_until:
            self._next_wide_at = now + WIDE_SECONDS
            return _before(latest, OVERLAP)
        return narrow

    def _too_late(self, servers: Iterable[Server]) -> bool:
        """Does a wide list have news that a narrow one would not have had?"""
        return any(server.updated < self._narrow and self._is_news(server) for server in servers)

    def _is_news(self, server: Server) -> bool:
        known = self._updated.get(server.id)
        # What is gone may have gone before the last list of all, which does not show it.
        return not server.gone if known is None else known != server.updated


def _before(latest: str, overlap: timedelta) -> str | None:
    """A time as Nova understands it; None when ``latest`` is none."""
    try:
        when = datetime.fromisoformat(latest.replace("Z", "+00:00"))
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - overlap).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
