# SPDX-License-Identifier: Apache-2.0
"""A simulated project of Google Cloud over HTTP: tokens, Compute Engine and Cloud Storage, with memory and settings.

Google's own clients talk to it as to Google::

    with GceSimulator(GceSettings(boot_seconds=(1, 3))) as simulator:
        simulator.write_key_file(tmp_path / "key.json")
        ...
        simulator.change(errors=[{"operation": "instances.insert", "kind": "drop", "after": True, "rate": 0.1}])

``python -m simulators.gce`` runs it as a process of its own; `GceSimulatorClient` steers it then.
"""

from simulators.gce.client import GceSimulatorClient
from simulators.gce.settings import GceBootRule, GceDeleteRule, GceErrorRule, GceSettings, ZoneCapacity
from simulators.gce.simulator import GceSimulator

__all__ = [
    "GceBootRule",
    "GceDeleteRule",
    "GceErrorRule",
    "GceSettings",
    "GceSimulator",
    "GceSimulatorClient",
    "ZoneCapacity",
]
