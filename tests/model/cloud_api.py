# SPDX-License-Identifier: Apache-2.0
"""What drivers of clouds with an HTTP API need in a simulated world: a simulator without a socket, and no threads.

`ModelApi` takes the place of the connection to a simulator of `simulators`; `ModelLister` that of the thread of
an `nodepool.driver.statemachine.inventory.Inventory`. The shared threads of a provider are in `tests.model.threads`.
"""

# The model runs the scans of an inventory itself, in place of their threads.
# ruff: noqa: SLF001
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from simulators.base.messages import Answer, Request
from tests.model.threads import launcher_that_runs

if TYPE_CHECKING:
    from nodepool.driver.statemachine.inventory import Inventory
    from simulators.base.application import SimulatedApplication
    from tests.model.process import Turn
    from tests.model.world import World


class ModelApi:
    """Calls of a simulated cloud: others may do something before and after each of them."""

    def __init__(self, world: World, application: SimulatedApplication) -> None:
        self._world = world
        self._application = application

    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        data: Iterable[bytes] | None = None,
    ) -> Answer | None:
        """Make one call; None = the connection ended without an answer.

        :param data: of an image, in place of a body.
        """
        parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True) if parts.query else {}
        own = {name.lower(): value for name, value in headers.items()}
        request = Request(method, unquote(parts.path), query, own, body)
        self._world.baton.pause()
        if data is not None:
            request.sink = self._application.body_sink(request)
            for piece in data:
                if request.sink is not None:
                    request.sink.feed(piece)
        if (seconds := self._application.delay(request)) > 0:
            self._world.baton.wait(lambda: False, self._world.now + seconds)
        answer = self._application.handle(request)
        self._world.baton.pause()
        for bug in self._application.bugs:
            self._world.violation(bug)
        return None if answer.silence is not None else answer


class ModelLister:
    """The thread of an inventory: each list is a job."""

    def __init__(self, inventory: Inventory[Any]) -> None:
        self._inventory = inventory
        self._busy = False
        self._owner = launcher_that_runs()
        self._owner.listers.append(self)

    @property
    def ended(self) -> bool:
        return self._inventory._stopped

    def join(self, timeout: float | None = None) -> None:
        """As a thread."""

    def turns(self) -> Iterator[Turn]:
        if not self._busy and not self.ended and self._inventory._pause() <= 0:
            yield f"{self._owner.name}.lists", self._begin

    def dues(self) -> Iterator[float]:
        if not self._busy and not self.ended:
            yield self._owner.world.now + self._inventory._pause()

    def _begin(self) -> None:
        self._busy = True
        self._owner.world.spawn(f"{self._owner.name}.lists", self._owner, self._list)

    def _list(self) -> None:
        inventory = self._inventory
        inventory.poll(inventory.complete_is_due())
        self._busy = False
