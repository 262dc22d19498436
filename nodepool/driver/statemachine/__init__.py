# SPDX-License-Identifier: Apache-2.0
"""Framework for drivers that launch and delete instances of a cloud in steps (reference/driver 7 to 11).

A driver imports from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.statemachine.adapter import SWEEP_LIST_SECONDS, Adapter, StateMachine
from nodepool.driver.statemachine.cloud import CloudAdapter, ImageFile, PlacedCreation
from nodepool.driver.statemachine.handler import StateMachineHandler
from nodepool.driver.statemachine.instance import (
    CloudInstance,
    CloudResource,
    Instance,
    Resource,
    ResourceKind,
    ResourceKinds,
)
from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.inventory import WatchedInventory
from nodepool.driver.statemachine.lost_creations import Creation, CreationKey
from nodepool.driver.statemachine.machines import CreationMachine, DeletionMachine, Order
from nodepool.driver.statemachine.provider import StateMachineDriver, StateMachineProvider
from nodepool.late_names import late_names

__all__ = [
    "SWEEP_LIST_SECONDS",
    "Adapter",
    "CloudAdapter",
    "CloudInstance",
    "CloudResource",
    "Creation",
    "CreationKey",
    "CreationMachine",
    "DeletionMachine",
    "ImageFile",
    "Instance",
    "InstanceCloud",
    "ListedImage",
    "Order",
    "PlacedCreation",
    "Resource",
    "ResourceKind",
    "ResourceKinds",
    "StateMachine",
    "StateMachineDriver",
    "StateMachineHandler",
    "StateMachineProvider",
    "WatchedInventory",
]

if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(
        __name__,
        {
            "NodescanRequest": "nodepool.compat.state_machine_tasks",
            "NodescanWorker": "nodepool.compat.state_machine_tasks",
            "StateMachineNodeDeleter": "nodepool.compat.state_machine_tasks",
            "StateMachineNodeLauncher": "nodepool.compat.state_machine_tasks",
        },
    )
