# SPDX-License-Identifier: Apache-2.0
"""`TranslatedCloud`: another simulated cloud, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulators.openstack import SimulatorClient


class SteeredCloud(Protocol):
    """What the clients of all simulators of clouds with servers have."""

    def state(self) -> dict[str, Any]: ...

    def call(self, method: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]: ...

    def change(self, **changes: object) -> None: ...

    def vanish(self, server_id: str, /) -> None: ...

    def release_stuck(self) -> None: ...


@dataclass(frozen=True)
class Translation:
    """What names and settings of the simulated OpenStack are in another cloud.

    :param servers: word for servers in lists and counters; ``volumes`` likewise.
    :param create: operation that makes a server; ``compute``: pattern of all operations of servers.
    :param no_host: how a boot fails for want of capacity, beside its kind.
    :param quota: settings for a number of servers that the quota allows.
    :param throttled: what stands for an answer 429; empty: the cloud gives the same.
    :param deletes: setting of deletions that go wrong; ``lost``: kind of each of them.
    :param lag: what else lists show late when servers are hidden, as its settings begin.
    :param leaks: settings of the simulated OpenStack for what a deletion leaves that this cloud leaves, too.
    """

    servers: str
    volumes: str
    create: str
    compute: str
    no_host: Mapping[str, Any]
    quota: Callable[[int], dict[str, Any]]
    throttled: Mapping[str, Any] = field(default_factory=dict)
    deletes: str = "deletes"
    lost: str = "swallowed"
    lag: str = "ghost"
    leaks: tuple[str, ...] = ()

    def settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the simulated OpenStack as those of the cloud. What there is not in the cloud is left out."""
        found: dict[str, Any] = {}
        if "errors" in changes:
            found["errors"] = [self._error(rule) for rule in changes["errors"]]
        if "boots" in changes:
            found["boots"] = [self._boot(rule) for rule in changes["boots"]]
        if "deletes" in changes:
            found[self.deletes] = [{**rule, "kind": self.lost} for rule in changes["deletes"]]
        for what in ("rate", "seconds"):
            if f"hidden_{what}" in changes:
                found |= dict.fromkeys((f"hidden_{what}", f"{self.lag}_{what}"), changes[f"hidden_{what}"])
        leaks = [changes[name] for name in self.leaks if name in changes]
        if leaks:
            found["leak_rate"] = max(leaks)
        if "quota" in changes:
            found |= self.quota(changes["quota"]["instances"])
        return found

    def _error(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        operations = {"compute.create_server": self.create, "compute.*": self.compute}
        found = {**rule, "operation": operations.get(rule["operation"], rule["operation"])}
        if rule["kind"] == "429" and self.throttled:
            found |= self.throttled
            found.pop("retry_after", None)
        return found

    def _boot(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {"error": {"kind": "failed"}, "no-valid-host": {"kind": "failed", **self.no_host}}
        return {**rule, **kinds.get(rule["kind"], {})}


class TranslatedCloud(SimulatorClient):
    """Each server has a volume to boot from, which is not counted. There are no ports or floating IPs.

    :param client: of the cloud's simulator.
    """

    def __init__(self, client: SteeredCloud, url: str, translation: Translation) -> None:
        super().__init__(url)
        self._client = client
        self._translation = translation

    def state(self) -> dict[str, Any]:
        state = self._client.state()
        peak = state[f"peak_{self._translation.servers}"]
        return {**state, "contents": self.counted(state), "peak_servers": peak}

    def counted(self, state: Mapping[str, Any]) -> dict[str, int]:
        """How many things there are, by the words of the simulated OpenStack. Each server counts as a port."""
        found = state["contents"]
        servers, volumes = found[self._translation.servers], found[self._translation.volumes]
        return {"servers": servers, "ports": servers, "floating_ips": 0, "volumes": volumes - servers}

    def servers(self) -> list[dict[str, Any]]:
        servers: list[dict[str, Any]] = self._client.call("GET", self._translation.servers)[self._translation.servers]
        return servers

    def vanish(self, server_id: str) -> None:
        self._client.vanish(server_id)

    def release_stuck(self) -> None:
        self._client.release_stuck()

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        self._client.change(**self._translation.settings(changes))
