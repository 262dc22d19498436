# SPDX-License-Identifier: Apache-2.0
"""A simulated subscription of Azure over HTTP: tokens, compute and network, with memory and settings.

Azure's own clients talk to it as to Azure::

    with AzureSimulator(AzureSettings(boot_seconds=(1, 3))) as simulator:
        simulator.write_auth_file(tmp_path / "auth.json")
        ...
        simulator.change(errors=[{"operation": "virtualMachines.put", "kind": "drop", "after": True, "rate": 0.1}])

``python -m nodepool.testing.azure`` runs it as a process of its own; `AzureSimulatorClient` steers it then.
"""

from nodepool.testing.azure.client import AzureSimulatorClient
from nodepool.testing.azure.settings import ArmErrorRule, AzureSettings, SizeCapacity, VmBootRule, VmDeleteRule
from nodepool.testing.azure.simulator import AzureSimulator, write_auth_file

__all__ = [
    "ArmErrorRule",
    "AzureSettings",
    "AzureSimulator",
    "AzureSimulatorClient",
    "SizeCapacity",
    "VmBootRule",
    "VmDeleteRule",
    "write_auth_file",
]
