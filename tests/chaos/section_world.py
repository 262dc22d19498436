# SPDX-License-Identifier: Apache-2.0
"""`SectionWorld`: the world with another cloud, whose providers are sections with pools, labels and cloud images."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.chaos import providers
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider


class SectionWorld(World, ABC):
    """Each launcher has a provider as `tests.chaos.world.CloudProvider`, and another as
    `tests.chaos.providers.RichProvider`, whose servers are reached over SSH."""

    #: Module that runs the simulator, and settings of it.
    simulator: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]]
    #: Keys of the other provider's labels: servers with a larger volume, and spot instances.
    volume_label: ClassVar[Mapping[str, Any]]
    spot_label: ClassVar[Mapping[str, Any]]
    #: More keys of its pools, by name.
    other_pools: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def simulator_command(self) -> list[str]:
        options = ["--seed", str(self.seed), "--settings", json.dumps(self.settings)]
        return [sys.executable, "-m", self.simulator, *self.simulator_options(), *options]

    def simulator_options(self) -> list[str]:
        """More options of the simulator."""
        return []

    def launcher_environment(self, number: int) -> dict[str, str]:
        # Its providers say where the cloud is.
        return {}

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        names = ("small", "medium", own_label(number))
        labels = [{"name": name, "cloud-image": "debian", **self.main_label(name)} for name in names]
        main = {"name": "main", "max-servers": self.limits.servers, "host-key-checking": False, **self.main_pool()}
        others = [
            self._pool_of_one(providers.VOLUME, self.volume_label),
            self._pool_of_one(providers.FLOATING, self.spot_label),
        ]
        times = {"launch-timeout": launch_timeout, "boot-timeout": launch_timeout, "launch-retries": 3}
        main_section = {**self.section(number), **times, "name": PROVIDER, "pools": [{**main, "labels": labels}]}
        other_section = {**self.other_section(number), **times, "name": providers.PROVIDER, "pools": others}
        return [
            SectionProvider(main_section),
            SectionProvider(other_section),
            static_provider(self.sshd.port, self.sshd.host_keys),
        ]

    def _pool_of_one(self, name: str, label: Mapping[str, Any]) -> dict[str, Any]:
        labels = [{"name": name, "cloud-image": "debian", **label}]
        return {"name": name, "max-servers": providers.POOL_SERVERS, **self.other_pools.get(name, {}), "labels": labels}

    @abstractmethod
    def section(self, number: int) -> dict[str, Any]:
        """A launcher's provider, without what depends on its name and pools; its image is ``debian``."""

    def other_section(self, number: int) -> dict[str, Any]:
        """The other provider, likewise."""
        return self.section(number)

    def main_pool(self) -> dict[str, Any]:
        """More keys of the pool of most labels."""
        return {}

    @abstractmethod
    def main_label(self, name: str) -> dict[str, Any]:
        """Keys of a label of it."""
