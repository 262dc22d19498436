# SPDX-License-Identifier: Apache-2.0
"""A simulated OpenStack over HTTP: Keystone, Nova, Neutron, Glance and Cinder with memory and settings.

openstacksdk talks to it as to a cloud::

    with OpenStackSimulator(Knobs(boot_seconds=(1, 3))) as simulator:
        simulator.write_clouds_yaml("clouds.yaml")
        ...
        simulator.change(errors=[{"operation": "compute.create_server", "kind": "500", "after": True, "rate": 0.1}])

``python -m simulators.openstack`` runs it as a process of its own; `SimulatorClient` steers it then.
"""

from simulators.openstack.client import SimulatorClient
from simulators.openstack.knobs import BootRule, DeleteRule, ErrorRule, Knobs, Quota
from simulators.openstack.network import NetworkSpec
from simulators.openstack.simulator import CLOUD_NAME, OpenStackSimulator

__all__ = [
    "CLOUD_NAME",
    "BootRule",
    "DeleteRule",
    "ErrorRule",
    "Knobs",
    "NetworkSpec",
    "OpenStackSimulator",
    "Quota",
    "SimulatorClient",
]
