# SPDX-License-Identifier: Apache-2.0
"""A simulated region of IBM Cloud over HTTP: IAM, the VPC service, resource groups, tags and object storage.

IBM's own clients talk to it as to IBM Cloud::

    with IbmVpcSimulator(IbmVpcSettings(boot_seconds=(1, 3))) as simulator:
        simulator.write_credentials(tmp_path / "ibm-credentials.env")
        ...
        simulator.change(errors=[{"operation": "vpc.create_instance", "kind": "drop", "after": True, "rate": 0.1}])

``python -m simulators.ibmvpc`` runs it as a process of its own; `IbmVpcSimulatorClient` steers it then.
"""

from simulators.ibmvpc.client import IbmVpcSimulatorClient
from simulators.ibmvpc.settings import (
    IbmVpcSettings,
    ImageImportRule,
    ProfileCapacity,
    VpcBootRule,
    VpcDeleteRule,
    VpcErrorRule,
)
from simulators.ibmvpc.simulator import IbmVpcSimulator, environment, write_credentials

__all__ = [
    "IbmVpcSettings",
    "IbmVpcSimulator",
    "IbmVpcSimulatorClient",
    "ImageImportRule",
    "ProfileCapacity",
    "VpcBootRule",
    "VpcDeleteRule",
    "VpcErrorRule",
    "environment",
    "write_credentials",
]
