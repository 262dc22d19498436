# SPDX-License-Identifier: Apache-2.0
"""Framework for drivers that launch and delete instances of a cloud in steps (reference/driver 7 to 11).

A driver imports from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.framework.uploads import ListedImage as ListedImage
from nodepool.driver.statemachine.adapter import SWEEP_LIST_SECONDS as SWEEP_LIST_SECONDS
from nodepool.driver.statemachine.adapter import Adapter as Adapter
from nodepool.driver.statemachine.adapter import CloudInstance as CloudInstance
from nodepool.driver.statemachine.adapter import CloudResource as CloudResource
from nodepool.driver.statemachine.adapter import Creation as Creation
from nodepool.driver.statemachine.adapter import CreationKey as CreationKey
from nodepool.driver.statemachine.adapter import ImageFile as ImageFile
from nodepool.driver.statemachine.adapter import Instance as Instance
from nodepool.driver.statemachine.adapter import Resource as Resource
from nodepool.driver.statemachine.adapter import StateMachine as StateMachine
from nodepool.driver.statemachine.creation import CreationMachine as CreationMachine
from nodepool.driver.statemachine.creation import PlacedCreation as PlacedCreation
from nodepool.driver.statemachine.deletion import DeletionMachine as DeletionMachine
from nodepool.driver.statemachine.instance import CloudAdapter as CloudAdapter
from nodepool.driver.statemachine.instance import InstanceCloud as InstanceCloud
from nodepool.driver.statemachine.instance import Order as Order
from nodepool.driver.statemachine.instance import ResourceKind as ResourceKind
from nodepool.driver.statemachine.instance import ResourceKinds as ResourceKinds
from nodepool.driver.statemachine.inventory import WatchedInventory as WatchedInventory
from nodepool.driver.statemachine.launch import StateMachineHandler as StateMachineHandler
from nodepool.driver.statemachine.provider import StateMachineDriver as StateMachineDriver
from nodepool.driver.statemachine.provider import StateMachineProvider as StateMachineProvider
from nodepool.late_names import late_names

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
