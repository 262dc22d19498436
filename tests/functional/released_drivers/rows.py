# SPDX-License-Identifier: Apache-2.0
"""The rows of the table."""

from __future__ import annotations

from tests.functional.released_drivers.cloud import Cloud
from tests.functional.released_drivers.in_memory import Example, Fake, Test
from tests.functional.released_drivers.pods import Kubernetes, OpenShift, OpenShiftPods
from tests.functional.released_drivers.simulated import Aws, Azure, Gce, IbmVpc, OpenStack, RenamedOpenStack
from tests.functional.released_drivers.static_hosts import BackedNodes, StaticHosts

#: In the order of the table.
ROWS: tuple[type[Cloud], ...] = (
    Aws,
    Kubernetes,
    OpenShift,
    OpenShiftPods,
    OpenStack,
    RenamedOpenStack,
    StaticHosts,
    BackedNodes,
    Azure,
    Gce,
    IbmVpc,
    Example,
    Fake,
    Test,
)
#: Those on a control plane of Kubernetes.
CLUSTERS: tuple[type[Cloud], ...] = (Kubernetes, OpenShift, OpenShiftPods)
