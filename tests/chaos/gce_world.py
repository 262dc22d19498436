# SPDX-License-Identifier: Apache-2.0
"""The same world with Google Compute Engine as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tests.chaos.gce_cloud import GceCloud
from tests.chaos.links import Links
from tests.chaos.section_world import SectionWorld
from tests.support.clouds import gce_section

#: Type with 1 core and 614 MiB: pools have no limits of cores and memory here.
SMALL = "f1-micro"


class GceWorld(SectionWorld):
    """See `SectionWorld`."""

    simulator = "simulators.gce"
    settings: ClassVar[Mapping[str, Any]] = {
        "boot_seconds": [0.3, 1.5],
        "delete_seconds": [0.1, 0.5],
        "latency_seconds": [0.0, 0.05],
        "operation_seconds": 60,
    }
    volume_label: ClassVar[Mapping[str, Any]] = {"instance-type": SMALL, "volume-size": 20, "volume-type": "pd-ssd"}
    spot_label: ClassVar[Mapping[str, Any]] = {
        "instance-type": [SMALL, "e2-micro"],
        "use-spot": True,
        "spot-fallback": True,
    }

    def simulator_options(self) -> list[str]:
        return ["--key-file", str(self._key_file)]

    @property
    def _key_file(self) -> Path:
        """What the simulator writes."""
        return self.directory / "gce.json"

    def make_cloud(self, url: str) -> GceCloud:
        return GceCloud(url)

    def write_cloud_file(self, number: int, links: Links) -> None:
        """Tokens come the same way as all answers."""
        key = json.loads(self._key_file.read_text(encoding="utf-8"))
        file = self._key_file_of(number)
        file.touch(mode=0o600)
        file.write_text(json.dumps({**key, "token_uri": f"{links.cloud_url}/token"}), encoding="utf-8")

    def _key_file_of(self, number: int) -> Path:
        return self.directory / f"gce{number}.json"

    def section(self, number: int) -> dict[str, Any]:
        section = gce_section(self._key_file_of(number), self.links[number].cloud_url, self.sshd.port)
        return {**section, "rate": 20}

    def other_section(self, number: int) -> dict[str, Any]:
        """Zones to choose from."""
        return {**self.section(number), "zone": ["us-central1-b", "us-central1-c"]}

    def main_label(self, name: str) -> dict[str, Any]:
        return {"instance-type": SMALL}
