# SPDX-License-Identifier: Apache-2.0
"""The same world with Google Compute Engine as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.chaos import providers
from tests.chaos.gce_cloud import GceCloud
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.gce_place import gce_section
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider

#: Type with 1 core and 614 MiB: pools have no limits of cores and memory here.
SMALL = "f1-micro"


class GceWorld(World):
    """See `World`."""

    def simulator_command(self) -> list[str]:
        settings = (
            '{"boot_seconds": [0.3, 1.5], "delete_seconds": [0.1, 0.5], "latency_seconds": [0.0, 0.05], '
            '"operation_seconds": 60}'
        )
        options = ["--key-file", str(self._key_file), "--seed", str(self.seed), "--settings", settings]
        return [sys.executable, "-m", "nodepool.testing.gce", *options]

    @property
    def _key_file(self) -> Path:
        """What the simulator writes."""
        return self.directory / "gce.json"

    def make_cloud(self, url: str) -> GceCloud:
        return GceCloud(url)

    def launcher_environment(self, number: int) -> dict[str, str]:
        return {}

    def write_cloud_file(self, number: int, links: Links) -> None:
        """Tokens come the same way as all answers."""
        key = json.loads(self._key_file.read_text(encoding="utf-8"))
        file = self._key_file_of(number)
        file.touch(mode=0o600)
        file.write_text(json.dumps({**key, "token_uri": f"{links.cloud_url}/token"}), encoding="utf-8")

    def _key_file_of(self, number: int) -> Path:
        return self.directory / f"gce{number}.json"

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        main = self._main_provider(number, launch_timeout)
        others = self._other_provider(number, launch_timeout)
        return [SectionProvider(main), SectionProvider(others), static_provider(self.sshd.port, self.sshd.host_keys)]

    def _main_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.world.CloudProvider`: instances of one type."""
        labels = [{"name": label, "instance-type": SMALL} for label in ("small", "medium", own_label(number))]
        pool = {"name": "main", "max-servers": self.limits.servers, "host-key-checking": False, "labels": labels}
        return self._section(number, PROVIDER, launch_timeout, [pool])

    def _other_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.providers.RichProvider`: spot instances, types and zones to choose from; reached over SSH."""
        spot = {"use-spot": True, "spot-fallback": True, "instance-type": [SMALL, "e2-micro"]}
        disk = {"instance-type": SMALL, "volume-size": 20, "volume-type": "pd-ssd"}
        pools: list[dict[str, Any]] = [
            {"name": providers.VOLUME, "labels": [{"name": providers.VOLUME, **disk}]},
            {"name": providers.FLOATING, "labels": [{"name": providers.FLOATING, **spot}]},
        ]
        for pool in pools:
            pool["max-servers"] = providers.POOL_SERVERS
        section = self._section(number, providers.PROVIDER, launch_timeout, pools)
        return {**section, "zone": ["us-central1-b", "us-central1-c"]}

    def _section(self, number: int, name: str, launch_timeout: int, pools: list[dict[str, Any]]) -> dict[str, Any]:
        for pool in pools:
            pool["labels"] = [{"cloud-image": "debian", **label} for label in pool["labels"]]
        section = gce_section(self._key_file_of(number), self.links[number].cloud_url, self.sshd.port, name)
        times = {"launch-timeout": launch_timeout, "boot-timeout": launch_timeout, "launch-retries": 3}
        return {**section, **times, "rate": 20, "pools": pools}
