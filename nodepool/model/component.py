# SPDX-License-Identifier: Apache-2.0
"""Entries of the component registry, ``/nodepool/components/<kind>/<hostname><seq>`` (reference/zookeeper 7)."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from nodepool.model.record import InvalidRecord, str_list, whole_number

INITIALIZING: Final = "initializing"
RUNNING: Final = "running"
PAUSED: Final = "paused"
STOPPED: Final = "stopped"

DEFAULT_PRIORITY: Final = 100
#: Part of the id of each pool, between the full name of its host and provider and pool.
POOL_MARK: Final = "-PoolWorker."


class Component:
    """One registered daemon or pool.

    :param hostname: as ``gethostname()`` returns it.
    :param version: release of the program.
    """

    kind: ClassVar[str] = ""

    def __init__(self, hostname: str = "", version: str | None = None) -> None:
        self.hostname = hostname
        self.state = STOPPED
        self.version = version
        self.mzxid = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "hostname": self.hostname,
            "kind": self.kind,
            "model_api": 0,
            "state": self.state,
            "version": self.version,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], id: str = "") -> Self:
        """Read an entry. Raises InvalidRecord.

        :param id: name of its znode, for an entry without a host.
        """
        component = cls(str(data.get("hostname") or id), str(data.get("version", "")))
        component.state = str(data.get("state", STOPPED))
        return component


class LauncherComponent(Component):
    kind = "launcher"


class BuilderComponent(Component):
    kind = "builder"


class PoolComponent(Component):
    """A provider-pool that serves requests. ``id`` is the launcher id that requests and nodes carry."""

    kind = "pool"

    def __init__(self, hostname: str = "", version: str | None = None) -> None:
        super().__init__(hostname, version)
        self.id = ""
        self.name = ""
        self.provider_name = ""
        self.supported_labels: list[str] = []
        self.priority = DEFAULT_PRIORITY
        self.paused = False

    def to_dict(self) -> dict[str, Any]:
        return {
            **super().to_dict(),
            "id": self.id,
            "name": self.name,
            "paused": self.paused,
            "priority": self.priority,
            "provider_name": self.provider_name,
            "supported_labels": sorted(self.supported_labels),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], id: str = "") -> Self:
        component = super().from_dict(data, id)
        if not isinstance(data.get("id"), str):
            raise InvalidRecord("id is not a string")
        component.id = data["id"]
        component.name = str(data.get("name", ""))
        component.provider_name = str(data.get("provider_name", ""))
        component.supported_labels = str_list("supported_labels", data.get("supported_labels"))
        component.priority = whole_number("priority", data.get("priority", DEFAULT_PRIORITY))
        component.paused = data.get("paused") is True
        return component
