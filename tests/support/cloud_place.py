# SPDX-License-Identifier: Apache-2.0
"""A launcher with providers of simulated clouds: what tests of all drivers do with it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from nodepool.driver.statemachine import StateMachineProvider
from simulators.base.simulator import Simulator
from tests.support.local_launcher import LocalLauncher
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for


class CloudPlace:
    """A launcher with one provider, and its cloud.

    :cvar kinds: of things in the cloud that must be gone in the end.
    :param section: of the provider; change it before `launch`, or before `rewrite`.
    """

    kinds: Sequence[str] = ()

    def __init__(self, simulator: Simulator[Any], znodes: PoolZnodes, section: dict[str, Any]) -> None:
        self.simulator: Any = simulator
        self.znodes = znodes
        self.section = section
        #: More providers.
        self.others: list[dict[str, Any]] = []
        #: Settings of labels at the top level.
        self.label_settings: dict[str, dict[str, Any]] = {}
        self.start: Callable[[], LocalLauncher]
        self.launcher: LocalLauncher | None = None

    @property
    def pool(self) -> dict[str, Any]:
        found: dict[str, Any] = self.section["pools"][0]
        return found

    @property
    def label(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pool["labels"][0]
        return found

    @property
    def provider(self) -> StateMachineProvider:
        assert self.launcher is not None
        provider = self.launcher.nodepool.providers.running[self.section["name"]]
        assert isinstance(provider, StateMachineProvider)
        return provider

    def settings(self) -> dict[str, Any]:
        """The configuration as the sections are now."""
        providers = [self.section, *self.others]
        pools = [pool for section in providers for pool in section["pools"]]
        names = {label["name"] for pool in pools for label in pool.get("labels", ())}
        names.update(label for pool in pools for node in pool.get("nodes", ()) for label in node["labels"])
        labels = [{"name": name, **self.label_settings.get(name, {})} for name in sorted(names)]
        return copy.deepcopy({"labels": labels, "diskimages": [{"name": "built"}], "providers": providers})

    def launch(self) -> LocalLauncher:
        self.launcher = self.start()
        return self.launcher

    def paused(self) -> dict[str, bool]:
        """What the registry says of each provider's pools."""
        return {pool["provider_name"]: pool["paused"] for pool in self.znodes.pools()}

    def rewrite(self) -> None:
        """Write the configuration as the sections are now; the launcher notices soon."""
        assert self.launcher is not None
        self.launcher.write(self.settings())

    def contents(self) -> dict[str, int]:
        found: dict[str, int] = self.simulator.state()["contents"]
        return found

    def calls(self, operation: str) -> int:
        return int(self.simulator.state()["calls"].get(operation, 0))

    def fulfilled(self, request: str) -> list[dict[str, Any]]:
        """Waits for a request; returns its nodes."""

        def over() -> bool:
            assert self.znodes.request_state(request) == "fulfilled", f"it is {self.znodes.request_state(request)}"
            return True

        wait_for(f"{request} is fulfilled", over)
        found = self.znodes.request(request) or {}
        return [node for node_id in found["nodes"] if (node := self.znodes.node(node_id))]

    def ended(self, request: str) -> str | None:
        """The state of a request that is over; None = it is not."""
        state = self.znodes.request_state(request)
        return state if state in ("fulfilled", "failed") else None

    def failed(self, request: str) -> None:
        wait_for(f"{request} fails", lambda: self.znodes.request_state(request) == "failed")

    def give_back(self, request: str) -> None:
        """What a client does when its job is over."""
        for node_id in (self.znodes.request(request) or {})["nodes"]:
            self.znodes.change_node(node_id, state="used")
        self.znodes.delete_request(request)

    def serve(self, label: str = "small") -> None:
        """A request is fulfilled, and its node given back."""
        request = self.znodes.submit([label])
        self.fulfilled(request)
        self.give_back(request)

    def wait_empty(self) -> None:
        """Nothing of ours is left anywhere."""

        def empty() -> bool:
            contents = {kind: self.contents()[kind] for kind in self.kinds}
            assert not any(contents.values()), f"left in the cloud: {contents}"
            assert not self.znodes.nodes(), f"left in ZooKeeper: {self.znodes.nodes()}"
            return True

        wait_for("nothing is left", empty)
