# SPDX-License-Identifier: Apache-2.0
"""All scenarios, in the order in which they are run and shown."""

from __future__ import annotations

from benchmarks.scenarios import (
    aws,
    azure,
    backlog,
    burst,
    commands,
    configuration,
    defaults,
    fleet,
    gce,
    ibmvpc,
    idle,
    images,
    kubernetes,
    openstack,
    shares,
    single,
    start,
    steady,
    traces,
    viewers,
    web,
)
from benchmarks.suite.model import Scenario

SCENARIOS: tuple[Scenario, ...] = (
    single.SCENARIO,
    burst.SCENARIO,
    steady.SCENARIO,
    viewers.SCENARIO,
    traces.SCENARIO,
    web.SCENARIO,
    backlog.SCENARIO,
    backlog.TENANTS,
    shares.SCENARIO,
    fleet.SCENARIO,
    *openstack.SCENARIOS,
    *aws.SCENARIOS,
    *azure.SCENARIOS,
    *gce.SCENARIOS,
    *ibmvpc.SCENARIOS,
    *kubernetes.SCENARIOS,
    *defaults.SCENARIOS,
    start.SCENARIO,
    configuration.SCENARIO,
    idle.SCENARIO,
    images.SCENARIO,
    commands.SCENARIO,
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
