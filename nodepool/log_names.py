# SPDX-License-Identifier: Apache-2.0
"""Names of the loggers that operators filter on (reference/commands 7). They are those of Nodepool 11, and stay.

Other loggers are named after their modules, and may change with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

NODEPOOL: Final = "nodepool.NodePool"
BUILDER: Final = "nodepool.builder.NodePoolBuilder"
CLEANUP_WORKER: Final = "nodepool.CleanupWorker"
DELETED_NODE_WORKER: Final = "nodepool.DeletedNodeWorker"
MIN_READY_WORKER: Final = "nodepool.MinReadyWorker"
CANARY_WORKER: Final = "nodepool.CanaryWorker"
MIXED_WORKER: Final = "nodepool.MixedWorker"
STATS_WORKER: Final = "nodepool.StatsWorker"
COMPONENT_REGISTRY: Final = "nodepool.ComponentRegistry"
ZOOKEEPER: Final = "nodepool.zk.ZooKeeper"
STACK_DUMP: Final = "nodepool.stack_dump"
CONFIG_VALIDATOR: Final = "nodepool.cmd.config_validator"
#: Launches and deletions of drivers that have a thread a node.
NODE_LAUNCHER: Final = "nodepool.NodeLauncher"
NODE_DELETER: Final = "nodepool.NodeDeleter"


#: Logger -> provider and pool that all its messages are about.
_PLACES: Final[dict[str, Mapping[str, str]]] = {}
#: The id of a pool worker in the name of a logger, ``<host>-PoolWorker.<provider>-<pool>-<32 hexadecimal digits>``.
_POOL_ID: Final = re.compile(r"\[.*-PoolWorker\.(.+)-[0-9a-f]{32}\]$")


def place_of(name: str) -> Mapping[str, str]:
    """Provider and pool that all messages of a logger are about, as keys ``provider`` and ``pool``; as far as known."""
    return _PLACES.get(name, {})


def shortened(name: str) -> str:
    """The name of a logger without what only makes it longer: host and number of a pool worker's id."""
    return _POOL_ID.sub(r"[\1]", name)


def _at(name: str, **place: str) -> str:
    """Remember what a logger is about."""
    if name not in _PLACES:
        _PLACES[name] = place
    return name


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
    return _at(f"nodepool.PoolWorker.{provider}-{pool}", provider=provider, pool=pool)


def request_handler(launcher_id: str) -> str:
    """Of the handlers of the requests that a pool worker serves.

    :param launcher_id: of the pool worker.
    """
    return f"nodepool.driver.NodeRequestHandler[{launcher_id}]"


def static_provider(provider: str) -> str:
    """Of a provider of static hosts. Nodepool 11 has the name without the provider; its level counts here, too."""
    return _at(f"nodepool.driver.static.StaticNodeProvider.{provider}", provider=provider)


def state_machine_provider(provider: str) -> str:
    """Of a provider whose driver is built of state machines."""
    return _at(f"nodepool.StateMachineProvider.{provider}", provider=provider)


def state_machine_launcher(provider: str) -> str:
    """Of the launches in such a provider."""
    return _at(f"nodepool.StateMachineNodeLauncher.{provider}", provider=provider)


def state_machine_deleter(provider: str) -> str:
    """Of the deletions in such a provider."""
    return _at(f"nodepool.StateMachineNodeDeleter.{provider}", provider=provider)
