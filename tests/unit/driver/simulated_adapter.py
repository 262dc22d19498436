# SPDX-License-Identifier: Apache-2.0
"""`SimulatedAdapter`: an adapter at a simulated cloud, whose machines a test drives to their end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from nodepool.driver.statemachine import Instance, instance
from nodepool.driver.statemachine.adapter import StateMachine
from tests.support.cloud_site import ObservedCloud, assert_unharmed

NODE = "0000000042"
HOST = f"np{NODE}"
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
#: No answer of a machine takes so long, unless something is broken.
DEADLINE_SECONDS = 45.0


class ConfiguredAdapter(Protocol):
    """With a provider that has the pool ``main`` with the label ``small``."""

    config: Any

    @property
    def getCreateStateMachine(self) -> Any: ...

    @property
    def getDeleteStateMachine(self) -> Any: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=ObservedCloud)
A = TypeVar("A", bound=ConfiguredAdapter)


class SimulatedAdapter(Generic[S, A]):
    """
    :param simulator: the cloud that the adapter uses.
    :param uncounted: kinds of things that `contents` leaves out.
    """

    def __init__(self, simulator: S, adapter: A, uncounted: Sequence[str] = ()) -> None:
        self.simulator = simulator
        self.adapter = adapter
        self._uncounted = uncounted

    def creation(self, node: str = NODE, attempt: int = 1, image: str | None = None) -> Any:
        """The machine of a launch."""
        config = self.adapter.config
        label = config.pools["main"].labels["small"]
        data = instance.for_node(node, "main", config.name)
        made = self.adapter.getCreateStateMachine(f"np{node}", label, image, data, None, None, LOG)
        made.attempt = attempt
        return made

    def launch(self, node: str = NODE, attempt: int = 1, image: str | None = None) -> Instance:
        """The instance that a launch ends with; raises what ends it."""
        found = drive(self.creation(node, attempt, image))
        assert found is not None
        return found

    def delete(self, external_id: Any) -> None:
        """Blocks until it is gone; raises what ends the deletion."""
        drive(self.adapter.getDeleteStateMachine(external_id, LOG))

    def calls(self, operation: str) -> int:
        """How many the cloud has had."""
        return int(self.simulator.state()["calls"].get(operation, 0))

    def contents(self) -> dict[str, int]:
        """What there is in the cloud, by kind."""
        found: dict[str, int] = self.simulator.state()["contents"]
        return {kind: number for kind, number in found.items() if number and kind not in self._uncounted}


@contextmanager
def simulated(simulator: S, adapter: A, uncounted: Sequence[str] = ()) -> Iterator[SimulatedAdapter[S, A]]:
    """Parameters as those of `SimulatedAdapter`. The adapter stops with the block; no node had two machines then."""
    try:
        yield SimulatedAdapter(simulator, adapter, uncounted)
    finally:
        adapter.stop()
    assert_unharmed(simulator)


def drive(machine: StateMachine) -> Instance | None:
    """Advance a machine to its end, as the framework does it: when it wakes, and when it says."""
    woken = threading.Event()
    machine.wake = woken.set
    limit = threading.Timer(DEADLINE_SECONDS, lambda: None)
    limit.start()
    try:
        while limit.is_alive():
            woken.clear()
            found = machine.advance()
            if machine.complete:
                return found
            wait = machine.next_advance_seconds
            woken.wait(1.0 if wait is None else min(wait, 1.0))
    finally:
        limit.cancel()
        limit.join()
    raise AssertionError(f"the machine is still {machine.state}")
