# SPDX-License-Identifier: Apache-2.0
"""`TranslatedCloud`: another simulated cloud, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulators.openstack import SimulatorClient
from tests.support.clouds import SimulatedCloud


@dataclass(frozen=True)
class Translation:
    """What names and settings of the simulated OpenStack are in another cloud, beside what is in its words.

    :param volumes: what the simulator calls them.
    :param no_host: how a boot fails for want of capacity, beside its kind.
    :param quota: settings for a number of servers that the quota allows.
    :param create: operations that make what a server needs; "" = that which makes the server.
    :param lag: what else lists show late when servers are hidden, as its settings begin.
    :param leaks: settings of the simulated OpenStack for what a deletion leaves that this cloud leaves, too.
    :param counts: how many ports and floating IPs are there that are counted, of the state of the simulator. Without
        them each server counts as a port.
    """

    words: type[SimulatedCloud]
    volumes: str
    no_host: Mapping[str, Any]
    quota: Callable[[int], dict[str, Any]]
    create: str = ""
    lag: str = "ghost"
    leaks: tuple[str, ...] = ("volume_leak_rate",)
    counts: Callable[[Mapping[str, Any]], Mapping[str, int]] = field(default=lambda _state: {})

    def settings(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the simulated OpenStack as those of the cloud. What there is not in the cloud is left out."""
        found: dict[str, Any] = {}
        if "errors" in changes:
            found["errors"] = [self._error(rule) for rule in changes["errors"]]
        if "boots" in changes:
            found["boots"] = [self._boot(rule) for rule in changes["boots"]]
        if "deletes" in changes:
            setting, kind = self.words.deletion_faults
            found[setting] = [{**rule, "kind": kind} for rule in changes["deletes"]]
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
        create = self.words.operations["create"]
        operations = {
            "compute.create_server": self.create or create,
            "compute.*": f"{create.partition('.')[0]}.*",
        }
        found = {**rule, "operation": operations.get(rule["operation"], rule["operation"])}
        throttled = self.words.put_offs[-1]
        if rule["kind"] == "429" and throttled["kind"] != "429":
            found |= throttled
            found.pop("retry_after", None)
        return found

    def _boot(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {"error": {"kind": "failed"}, "no-valid-host": {"kind": "failed", **self.no_host}}
        return {**rule, **kinds.get(rule["kind"], {})}


class TranslatedCloud(SimulatorClient):
    """Each server has a volume to boot from, which is not counted."""

    def __init__(self, url: str, translation: Translation) -> None:
        super().__init__(url)
        self._translation = translation

    def state(self) -> dict[str, Any]:
        state = super().state()
        kind, found = self._translation.words.listed_as[0], state["contents"]
        servers, volumes = found[kind], found[self._translation.volumes]
        contents = {"servers": servers, "ports": servers, "floating_ips": 0, "volumes": volumes - servers}
        contents |= self._translation.counts(state)
        return {**state, "contents": contents, "peak_servers": state[f"peak_{kind}"]}

    def servers(self) -> list[dict[str, Any]]:
        kind, name, marks = self._translation.words.listed_as
        return [{"id": one.get("id", one[name]), "metadata": one[marks]} for one in self.call("GET", kind)[kind]]

    def vanish(self, server_id: str) -> None:
        # Some have no id beside the name.
        self.call("POST", "vanish", {"id": server_id, "name": server_id})

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        super().change(**self._translation.settings(changes))
