# SPDX-License-Identifier: Apache-2.0
"""What operators change by pages and API, as the commands do it (rules WP-91 to WP-96).

First the changes (`Actions`), then who may change something.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model import states
from nodepool.model.maintenance import MODES, Maintenance, Mode
from nodepool.plan.maintenance import UnclearSubject, find
from nodepool.web.answers import WebProblem
from nodepool.web.browser_login import BrowserLogin
from nodepool.web.tokens import Tokens
from nodepool.zk import zookeeper
from nodepool.zk.locks import COMMAND, LockOwners

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.observed import Observed
    from nodepool.zk.maintenance_store import MaintenanceStore
    from nodepool.zk.zookeeper import ZooKeeper

log = logging.getLogger("nodepool.web.changes")

#: How long a node's lock is waited for. A page waits no longer.
LOCK_SECONDS: Final = 2.0
#: Texts in records and in the log are cut.
MOST_TEXT: Final = 500


@dataclass(frozen=True)
class Wish:
    """What an operator asks for.

    :param by: name of the user. :param reason: why; never empty.
    :param until: end of it, in seconds since the epoch; None = none.
    """

    by: str
    reason: str
    until: float | None = None

    @property
    def operator(self) -> str:
        """As records name who did it."""
        return f"{self.by} (web)"


class Actions:
    """Changes records in ZooKeeper. Any thread; every method blocks for round trips, and raises WebProblem."""

    def __init__(
        self,
        zk: ZooKeeper,
        maintenance: MaintenanceStore,
        now: Callable[[], float] = wall_time,
    ) -> None:
        self._zk = zk
        self._maintenance = maintenance
        self._now = now

    # -- nodes --

    def hold(self, node_id: str, wish: Wish) -> None:
        """As ``nodepool hold``."""

        def change(node: Node) -> None:
            seconds = None if wish.until is None else max(1, round(wish.until - self._now()))
            node.hold(by=wish.operator, reason=wish.reason, seconds=seconds)

        self._change_node(node_id, change, wish)
        self._done(wish, f"node {node_id}", "hold")

    def delete(self, node_id: str, wish: Wish) -> None:
        """As ``nodepool delete``: the launcher does the rest."""

        def change(node: Node) -> None:
            node.state = states.DELETING

        self._change_node(node_id, change, wish)
        self._done(wish, f"node {node_id}", "delete")

    def _change_node(self, node_id: str, change: Callable[[Node], None], wish: Wish) -> None:
        with _translated():
            node = self._zk.getNode(node_id)
            if node is None:
                raise _no_node(node_id)
            try:
                zookeeper.take(self._zk, node, LOCK_SECONDS, f"{COMMAND}{wish.operator}")
                try:
                    change(node)
                    self._zk.storeNode(node)
                finally:
                    zookeeper.give_back(self._zk, node)
            except ZKLockException:
                owner = LockOwners(self._zk.client).of_node(node_id) or "somebody"
                text = f"Node {node_id} is {node.state}, and {owner} has its lock. Try again later."
                raise WebProblem(HTTPStatus.CONFLICT, text) from None
            except ZKConflict:
                if self._zk.getNode(node_id) is None:
                    raise _no_node(node_id) from None
                raise WebProblem(HTTPStatus.CONFLICT, f"Node {node_id} was changed at the same time.") from None

    # -- maintenance --

    def begin(self, kind: str, name: str, mode: str, wish: Wish, seen: Observed) -> Maintenance:
        """As ``nodepool pause``, ``drain`` and ``quarantine``; returns the record.

        :param seen: tells which names there are.
        """
        allowed = [one.value for one in MODES.get(kind, ())]
        if mode not in allowed:
            raise WebProblem(HTTPStatus.BAD_REQUEST, f"mode of a {kind} must be one of: {', '.join(allowed)}.")
        try:
            subject = find(name, [kind], {kind: known_names(kind, seen)})
        except UnclearSubject as unclear:
            raise WebProblem(HTTPStatus.NOT_FOUND, f"{unclear}.") from None
        record = Maintenance(kind, subject.name, Mode(mode), wish.reason, wish.operator, self._now(), wish.until)
        with _translated():
            self._maintenance.put(record)
        self._done(wish, f"{kind} {record.name}", mode)
        return record

    def end(self, kind: str, name: str, wish: Wish) -> None:
        """As ``nodepool resume`` and ``release``."""
        with _translated():
            removed = self._maintenance.remove(kind, name)
        if not removed:
            raise WebProblem(HTTPStatus.NOT_FOUND, f"{kind} {name} is neither paused nor drained nor quarantined.")
        self._done(wish, f"{kind} {name}", "back in service")

    # -- images --

    def build(self, image: str, wish: Wish) -> None:
        """As ``nodepool image-build``."""
        with _translated():
            self._zk.images.request_build(image)
        self._done(wish, f"image {image}", "build")

    def set_paused(self, image: str, paused: bool, wish: Wish) -> None:
        """As ``nodepool image-pause`` and ``image-unpause``."""
        with _translated():
            self._zk.images.set_paused(image, paused)
        self._done(wish, f"image {image}", "pause" if paused else "unpause")

    def _done(self, wish: Wish, subject: str, what: str) -> None:
        log.info("%s: %s by %s: %s", subject, what, wish.operator, wish.reason)


def known_names(kind: str, seen: Observed) -> set[str]:
    """Names of providers, pools, labels, hosts or launchers that running launchers know."""
    if kind == "host":
        full = {host.name for status in seen.statuses for host in status.hosts}
        return full | {name.rpartition("@")[2].rpartition(":")[0] for name in full}
    if kind == "label":
        return set(seen.labels)
    pools = seen.pools.values()
    if kind == "launcher":
        return {pool.host for pool in pools}
    return {pool.provider if kind == "provider" else pool.name for pool in pools}


def _no_node(node_id: str) -> WebProblem:
    return WebProblem(HTTPStatus.NOT_FOUND, f"There is no node {node_id}.")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Inside, a connection that is away is a WebProblem."""
    try:
        yield
    except ZKConnectionError as error:
        raise WebProblem(HTTPStatus.SERVICE_UNAVAILABLE, f"ZooKeeper cannot be reached: {error}. Try again.") from None


# `Access`: who may log in, and what operators may do. Made from ``webapp.auth``.


@dataclass(frozen=True)
class Access:
    """Of a site with ``webapp.auth.authenticators``.

    :param require_login: nobody sees anything who has not logged in.
    :param origins: addresses of the pages as browsers see them, beside that of the request.
    :param browser_logins: providers at which a browser can log in, by the names of their authenticators.
    """

    tokens: Tokens
    actions: Actions
    require_login: bool = False
    origins: Sequence[str] = ()
    browser_logins: Mapping[str, BrowserLogin] = field(default_factory=dict)
