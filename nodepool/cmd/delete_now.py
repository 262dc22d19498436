# SPDX-License-Identifier: Apache-2.0
"""``nodepool delete --now``: delete a node in the foreground, through its provider."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.cmd import nodes
from nodepool.cmd.app import CommandError
from nodepool.cmd.session import connect
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.interface import Provider
    from nodepool.model.node import Node
    from nodepool.zk.zookeeper import ZooKeeper


def delete_node(options: argparse.Namespace) -> int:
    """``nodepool delete --now``; blocks until the node is gone.

    :raises CommandError: the node or its provider is unknown, or the deletion failed.
    """
    from nodepool.config.loader import load_config

    config = load_config(options.config, options.secure)
    with connect(config) as zk:
        node = nodes.find(zk, options.id)
        if node.provider is None or node.provider not in config.providers:
            raise CommandError(
                f"Provider {node.provider} for node {options.id} not defined on this launcher", answer=True
            )
        with _started(zk, config, node.provider) as provider:
            _delete(zk, provider, node)
        left = zk.getNode(options.id)
        nodes.print_node(zk, options.id, options.format)
        if left is not None and left.state in (states.DELETING, states.DELETED):
            raise CommandError(f"Node {options.id} could not be deleted now; a launcher will try again")
    return 0


@contextlib.contextmanager
def _started(zk: ZooKeeper, config: Config, name: str) -> Iterator[Provider]:
    from nodepool.driver import gateway
    from nodepool.driver.framework.unavailable import UnavailableProviderConfig
    from nodepool.runtime.provider_start import start_now

    provider_config = config.providers[name]
    if isinstance(provider_config, UnavailableProviderConfig):
        raise CommandError(f"provider {name} cannot be used: {provider_config.reason}")
    try:
        provider = start_now(provider_config, zk)
    except Exception as error:
        # Whatever a driver raises, the operator gets a line and no traceback.
        raise CommandError(f"provider {name} cannot be started: {error}") from error
    try:
        yield provider
    finally:
        gateway.stop_provider(provider)
        gateway.join_provider(provider)


def _delete(zk: ZooKeeper, provider: Provider, node: Node) -> None:
    from nodepool.driver import gateway

    with nodes.locked(zk, node):
        node.state = states.DELETING
        zk.storeNode(node)
        task = gateway.start_node_cleanup(provider, node)
        # The deletion removes the node with its lock, or gives the lock back.
        task.join()
