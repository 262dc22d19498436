# SPDX-License-Identifier: Apache-2.0
"""``nodepool explain``: why a request waits, a node is held, a label is not served (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError
from nodepool.cmd.session import open_zookeeper

if TYPE_CHECKING:
    from nodepool.plan.explained import Explained
    from nodepool.plan.observed import Observed
    from nodepool.zk.zookeeper import ZooKeeper

_EXAMPLES: Final = """\
examples:
  nodepool explain 200-0000000123    why a request waits or failed, and what would help
  nodepool explain 0000000042        for whom a node is, and what is done with it
  nodepool explain debian-large      who serves a label
  nodepool explain cloud-1           how a provider is; cloud-1/main for one pool of it
"""


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "explain",
        help="tell why a request waits, a node is held, a label is not served or a provider does not work",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="REQUEST|NODE|LABEL|PROVIDER", help="id or name of what to explain")
    parser.add_argument(
        *("-f", "--format"), choices=("table", "json"), default="table", help="how to print it (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """``nodepool explain``"""
    from nodepool.plan import explain

    name = options.name
    with open_zookeeper(options) as zk:
        seen = observe(zk, name)
    kind = explain.kind_of(name, seen)
    if kind is None:
        near = explain.similar(name, seen) or "; nodepool request-list, list and label-list show what there is"
        raise CommandError(f"there is no request, node, label or provider {name!r}{near}")
    _print(explain.explain(name, kind, seen), seen, options.format)
    return 0


def _print(answer: Explained, seen: Observed, form: str) -> None:
    if form == "json":
        import json

        print(json.dumps(answer.to_dict()))
    else:
        from nodepool.listing.explanation import explanation_text

        print(explanation_text(answer, seen.now))


def observe(zk: ZooKeeper, name: str) -> Observed:
    """Read what there is to say about a subject. Blocks for some round trips. Raises ZKException."""
    from nodepool.plan.observed import Observed
    from nodepool.zk import status_records
    from nodepool.zk.maintenance_store import MaintenanceStore

    launchers = status_records.read_launchers(zk.client)
    nodes = {node.key: node for node in zk.nodeIterator(cached=False)}
    return Observed(
        now=wall_time(),
        requests={request.key: request for request in zk.nodeRequestIterator(cached=False)},
        nodes=nodes,
        registered=zk.getRegisteredPools(),
        statuses=status_records.read_pools(zk.client),
        maintenance=list(MaintenanceStore(zk.client).read_all().values()),
        events=[event for launcher in launchers for event in launcher.events],
        locked=frozenset(zk.nodes.locked_ids([name])) if name in nodes else frozenset(),
    )
