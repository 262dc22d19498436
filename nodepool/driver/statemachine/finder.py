# SPDX-License-Identifier: Apache-2.0
"""Finds instances by the node that they were made for. One list call answers all who ask meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from nodepool.driver.statemachine import metadata

if TYPE_CHECKING:
    from nodepool.driver.statemachine.instance import Instance


class InstanceFinder:
    """Looks for instances whose id is not known, because the answer to their creation was lost.

    A list that was begun before the question would not do; so those who ask while a list is under way get the next one.
    ``_lock`` guards ``_waiting`` and ``_running``; it is not held while the cloud is asked.

    :param list_instances: asks the cloud; may block and raise.
    :param executor: where it is asked.
    """

    def __init__(
        self, provider_name: str, list_instances: Callable[[], Iterable[Instance]], executor: Executor
    ) -> None:
        self._provider_name = provider_name
        self._list = list_instances
        self._executor = executor
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Future[list[Any]]]] = []
        self._running = False

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
            try:
                found = self._by_node()
            except Exception as error:  # noqa: BLE001 - handed to those who asked
                for _, future in batch:
                    future.set_exception(error)
                continue
            for node_id, future in batch:
                future.set_result(found.get(node_id, []))

    def _by_node(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for instance in self._list():
            node_id = metadata.node_id_of(instance.metadata, self._provider_name)
            if node_id is not None and not instance.deleted and instance.external_id is not None:
                found.setdefault(node_id, []).append(instance.external_id)
        return found
