# SPDX-License-Identifier: Apache-2.0
"""A simulated subscription of Azure over HTTP: tokens, compute and network, with memory and settings.

Azure's own clients talk to it as to Azure::

    with AzureSimulator(AzureSettings(boot_seconds=(1, 3))) as simulator:
        simulator.write_auth_file(tmp_path / "auth.json")
        ...
        simulator.change(errors=[{"operation": "virtualMachines.put", "kind": "drop", "after": True, "rate": 0.1}])

``python -m simulators.azure`` runs it as a process of its own; `AzureSimulatorClient` steers it then.
"""

from simulators.azure.client import AzureSimulatorClient
from simulators.azure.settings import ArmErrorRule, AzureSettings, SizeCapacity, VmBootRule, VmDeleteRule
from simulators.azure.simulator import AzureSimulator, write_auth_file

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
