# SPDX-License-Identifier: Apache-2.0
"""Names of the loggers that operators filter on (reference/commands 7). They are those of Nodepool 11, and stay.

Other loggers are named after their modules, and may change with them.
"""

from __future__ import annotations

from typing import Final

NODEPOOL: Final = "nodepool.NodePool"
BUILDER: Final = "nodepool.builder.NodePoolBuilder"
CLEANUP_WORKER: Final = "nodepool.CleanupWorker"
DELETED_NODE_WORKER: Final = "nodepool.DeletedNodeWorker"
MIN_READY_WORKER: Final = "nodepool.MinReadyWorker"
STATS_WORKER: Final = "nodepool.StatsWorker"
COMPONENT_REGISTRY: Final = "nodepool.ComponentRegistry"
ZOOKEEPER: Final = "nodepool.zk.ZooKeeper"
STACK_DUMP: Final = "nodepool.stack_dump"
CONFIG_VALIDATOR: Final = "nodepool.cmd.config_validator"
#: Launches and deletions of drivers that have a thread a node.
NODE_LAUNCHER: Final = "nodepool.NodeLauncher"
NODE_DELETER: Final = "nodepool.NodeDeleter"


def upload_worker(number: int) -> str:
    """Of a thread of the builder that uploads images."""
    return f"nodepool.builder.UploadWorker.{number}"


def image_cleanup_worker(number: int) -> str:
    """Of the thread of the builder that removes builds and uploads."""
    return f"nodepool.builder.CleanupWorker.{number}"


def build_worker(number: int) -> str:
    """Of a thread of the builder that builds images."""
    return f"nodepool.builder.BuildWorker.{number}"


def pool_worker(provider: str, pool: str) -> str:
    """Of the thread that serves one pool."""
    return f"nodepool.PoolWorker.{provider}-{pool}"


def request_handler(launcher_id: str) -> str:
    """Of the handlers of the requests that a pool worker serves.

    :param launcher_id: of the pool worker.
    """
    return f"nodepool.driver.NodeRequestHandler[{launcher_id}]"


def static_provider(provider: str) -> str:
    """Of a provider of static hosts. Nodepool 11 has the name without the provider; its level counts here, too."""
    return f"nodepool.driver.static.StaticNodeProvider.{provider}"


def state_machine_provider(provider: str) -> str:
    """Of a provider whose driver is built of state machines."""
    return f"nodepool.StateMachineProvider.{provider}"


def state_machine_launcher(provider: str) -> str:
    """Of the launches in such a provider."""
    return f"nodepool.StateMachineNodeLauncher.{provider}"


def state_machine_deleter(provider: str) -> str:
    """Of the deletions in such a provider."""
    return f"nodepool.StateMachineNodeDeleter.{provider}"
