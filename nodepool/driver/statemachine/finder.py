# SPDX-License-Identifier: Apache-2.0
"""The search after an error: is there an instance of this node? One list call answers all who ask meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.statemachine import metadata
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS
from nodepool.guard import settle

if TYPE_CHECKING:
    from nodepool.driver.statemachine.instance import Instance

#: Pauses between the looks for an instance whose creation has no answer: it may show late.
LOOK_SECONDS: Final = (1.0, 3.0)


class InstanceFinder:
    """Looks for instances whose id is not known, because the answer to their creation was lost.

    A list that was begun before the question would not do; so those who ask while a list is under way get the next one.
    ``_lock`` guards ``_waiting`` and ``_running``; it is not held while the cloud is asked.

    :param list_instances: asks the cloud; may block and raise.
    :param executor: where it is asked.
    :param lag_seconds: of the lists, see `Adapter`.
    """

    def __init__(
        self,
        provider_name: str,
        list_instances: Callable[[], Iterable[Instance]],
        executor: Executor,
        lag_seconds: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._provider_name = provider_name
        self._list = list_instances
        self._executor = executor
        self._lag_seconds = lag_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Future[list[Any]]]] = []
        self._running = False

    def search(self, node_id: str, wake: Callable[[], None], *, may_be_late: bool) -> Search:
        """A search for the instances of a node, in steps.

        :param wake: makes the next step due now.
        :param may_be_late: look more than once if there seems to be none.
        """
        pauses = [*LOOK_SECONDS, *([self._lag_seconds] if self._lag_seconds else [])] if may_be_late else []
        return Search(lambda: self.find(node_id), wake, pauses, self._clock)

    def find(self, node_id: str) -> Future[list[Any]]:
        """Begin to look; does not block. The result is the external ids of the instances of a node."""
        future: Future[list[Any]] = Future()
        with self._lock:
            self._waiting.append((node_id, future))
            start = not self._running
            self._running = True
        if start:
            self._executor.submit(self._run)
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._running = False
                    return
            answer: Future[dict[str, list[Any]]] = Future()
            settle((answer,), self._by_node)
            error = answer.exception()
            for node_id, future in batch:
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(answer.result().get(node_id, []))

    def _by_node(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for instance in self._list():
            node_id = metadata.node_id_of(instance.metadata, self._provider_name)
            if node_id is not None and not instance.deleted and instance.external_id is not None:
                found.setdefault(node_id, []).append(instance.external_id)
        return found


class Search:
    """Looks for the instances of a node.

    :param find: begins one look.
    :param pauses: as long as there seems to be none it is looked again after these, in seconds.
    """

    def __init__(
        self,
        find: Callable[[], Future[list[Any]]],
        wake: Callable[[], None],
        pauses: Iterable[float] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._find = find
        self._wake = wake
        self._pauses = list(pauses)
        self._clock = clock
        self._next_look_at = float("-inf")
        self._future: Future[list[Any]] | None = None
        #: External ids, when `step` has returned None.
        self.found: list[Any] = []

    def step(self) -> float | None:
        """Go on; None = `found` says what is there, else seconds until the next step.

        :raises Exception: the cloud could not be asked; call again to ask once more.
        """
        if self._future is None:
            # Whatever woke us meanwhile: an instance that shows late needs the whole pause.
            left = self._next_look_at - self._clock()
            if left > 0:
                return left
            self._future = self._find()
            self._future.add_done_callback(lambda _: self._wake())
        if not self._future.done():
            return WHEN_WOKEN_SECONDS
        future, self._future = self._future, None
        self.found = future.result()
        if self.found or not self._pauses:
            return None
        pause = self._pauses.pop(0)
        self._next_look_at = self._clock() + pause
        return pause
