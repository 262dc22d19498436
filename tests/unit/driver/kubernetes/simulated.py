# SPDX-License-Identifier: Apache-2.0
"""Adapters of the three drivers on a simulated cluster in this process, and machines that are driven to their end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from nodepool.clock import monotonic
from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.logconfig import ContextLogger
from tests.support.kubernetes_place import DRIVERS, PROJECT, provider_section
from tests.support.provider_sections import load_section
from tests.support.wait import DEADLINE_SECONDS

LOG = ContextLogger(logging.getLogger("test"))
_CLASSES: dict[str, Any] = {
    "kubernetes": KubernetesDriver,
    "openshift": OpenShiftDriver,
    "openshiftpods": OpenShiftPodsDriver,
}


def make_adapter(driver: str, **keys: Any) -> Any:
    """An adapter of the provider ``cluster-a``. :param keys: more of the provider."""
    made = _CLASSES[driver]()
    section = provider_section(driver, DRIVERS[driver])
    return made.getAdapter(load_section(made, {**section, **keys}))


def metadata_of(driver: str, node_id: str) -> dict[str, str]:
    """Of a node of that provider."""
    pool = PROJECT if driver == "openshiftpods" else "main"
    return {"nodepool_node_id": node_id, "nodepool_pool_name": pool, "nodepool_provider_name": "cluster-a"}


def creation_of(adapter: Any, driver: str, node_id: str = "0000000007", label: str = "pod") -> Any:
    """A machine that launches a node."""
    metadata = metadata_of(driver, node_id)
    settings = adapter.config.pools[metadata["nodepool_pool_name"]].labels[label]
    return adapter.getCreateStateMachine("", settings, None, metadata, None, None, LOG)


def drive(machine: Any, until: Callable[[Any], bool] = lambda machine: machine.complete) -> Any:
    """Advances it as the framework does, until it is complete, or something else is so; returns what it returned."""
    woken = threading.Event()
    machine.wake = woken.set
    deadline = monotonic() + DEADLINE_SECONDS
    while True:
        woken.clear()
        result = machine.advance()
        if until(machine):
            return result
        assert monotonic() < deadline, f"the machine is {machine.state}, it waits for {machine.waits_for!r}"
        pause = machine.next_advance_seconds
        woken.wait(min(0.2 if pause is None else pause, 0.2))
