# SPDX-License-Identifier: Apache-2.0
"""Commands about nodes and requests (reference/commands 2).

First ``nodepool list`` (``nodes``) and ``request-list`` (``requests``), with the options that choose nodes and
requests. Then ``hold`` and ``delete``, and the wait until nodes are deleted. Last ``delete --now``, which deletes nodes
in the foreground, through their providers.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic, wall_time
from nodepool.cmd import session
from nodepool.cmd.app import CommandError
from nodepool.exceptions import ZKConflict, ZKException, ZKLockException
from nodepool.listing import table, terminal
from nodepool.listing.nodes import Filter, NodeFacts, has_id, node_table, project_of
from nodepool.listing.requests import request_table
from nodepool.listing.table import Table, printable, printable_lines
from nodepool.model import states
from nodepool.model.event import counted, short
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths, zookeeper
from nodepool.zk.locks import COMMAND, LockOwners
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.plan.explain import WaitCause

#: How long a command waits for a node's lock, in seconds.
LOCK_SECONDS: Final = 5.0
#: Between two looks at nodes that are being deleted, in seconds.
_LOOK_SECONDS: Final = 0.5


def _filter_of(options: argparse.Namespace) -> Filter:
    """What the options choose."""
    pools = getattr(options, "pool", [])
    tenants, age, ids = options.tenant, options.older_than, options.ids
    return Filter(options.state, options.label, options.provider, pools, tenants, age, ids)


def _refuse_missing(what: str, options: argparse.Namespace, there: Sequence[Node] | Sequence[NodeRequest]) -> None:
    """Raises CommandError if nothing has one of the ids that are wanted. :param there: all that was read."""
    missing = [one for one in options.ids if not any(has_id(record.key, one) for record in there)]
    if missing and not options.watch:
        raise CommandError(f"{what} id {', '.join(missing)} not found")


def do_list(options: argparse.Namespace) -> int:
    """``nodepool list``"""
    wanted = _filter_of(options)
    as_released, place = session.is_as_released(options), session.place_of(options)
    with_lockers = not options.watch and (
        options.format in ("wide", "json") or {"locked_by"} & {*options.columns, options.sort}
    )
    everything: list[Node] = []

    def look(zk: ZooKeeper) -> Table:
        now = wall_time()
        everything[:] = zk.nodeIterator()
        nodes = [node for node in everything if wanted.node(node, now)]
        locked = zk.nodes.locked_ids([node.key for node in nodes])
        requests = {} if as_released else _requests(zk, nodes)
        lockers: Mapping[str, str] = {}
        if with_lockers and locked:
            lockers = LockOwners(zk.client).of_nodes([node.key for node in nodes if node.key in locked])
        return node_table(nodes, NodeFacts(locked, requests, lockers), now, detail=options.detail, place=place)

    empty = "" if options.ids else session.none_of("node", everything=wanted.everything)
    status = session.show_listing(options, look, empty, caches=True)
    _refuse_missing("Node", options, everything)
    return status


def _requests(zk: ZooKeeper, nodes: Sequence[Node]) -> Mapping[str, NodeRequest]:
    """The requests that nodes belong to, by their ids, as far as they exist."""
    ids = sorted({node.allocated_to for node in nodes if node.allocated_to and paths.is_name(node.allocated_to)})
    if zk.cache is not None:
        return {request_id: found for request_id in ids if (found := zk.cache.requests.get(request_id)) is not None}
    return {request.key: request for request in zk.requests.read_some(ids)}


def do_request_list(options: argparse.Namespace) -> int:
    """``nodepool request-list``"""
    wanted = _filter_of(options)
    as_released, place = session.is_as_released(options), session.place_of(options)

    everything: list[NodeRequest] = []

    def look(zk: ZooKeeper) -> Table:
        now = wall_time()
        everything[:] = zk.nodeRequestIterator()
        requests = [request for request in everything if wanted.request(request, now)]
        causes = {} if as_released else _causes(zk, requests, everything, now)
        return request_table(requests, now, causes, place=place)

    empty = "" if options.ids else session.none_of("request", everything=wanted.everything)
    status = session.show_listing(options, look, empty, caches=True)
    _refuse_missing("Request", options, everything)
    return status


def _causes(
    zk: ZooKeeper, requests: Sequence[NodeRequest], everything: Sequence[NodeRequest], now: float
) -> Mapping[str, WaitCause]:
    """Why requests wait or failed.

    :param everything: all requests, of which others may come first.
    """
    if all(request.state == states.FULFILLED for request in requests):
        return {}
    from nodepool.plan.explain import causes
    from nodepool.plan.observed import Observed
    from nodepool.zk.status import read_pools

    seen = Observed(
        now=now,
        requests={request.key: request for request in everything},
        registered=zk.getRegisteredPools(),
        statuses=read_pools(zk.client),
        maintenance=list(zk.maintenance.read_all().values()),
    )
    return causes(requests, seen)


# ``nodepool hold`` and ``delete``.


def do_hold(options: argparse.Namespace) -> int:
    """``nodepool hold``; returns 1 if a node could not be held."""
    by = session.operator()
    session.end_of(options, wall_time())

    def hold(zk: ZooKeeper, node: Node) -> None:
        end = session.end_of(options, wall_time())
        # Counted from the time of this write.
        seconds = None if end is None else max(1, round(end - wall_time()))
        node.hold(by=by, reason=options.reason, seconds=seconds)
        zk.storeNode(node)

    with session.open_zookeeper(options) as zk:
        now = wall_time()
        end = session.end_of(options, now)
        until = f"until {table.moment(end, now)}; then launchers delete" if end else "until nodepool delete deletes"
        return _change(zk, options, hold, lambda nodes: f"Held by {by} {until} {'it' if len(nodes) == 1 else 'them'}.")


def do_delete(options: argparse.Namespace) -> int:
    """``nodepool delete``; returns 1 if a node could not be deleted."""
    if options.now:
        return _delete_now(options)
    by = session.operator()

    def delete(zk: ZooKeeper, node: Node) -> None:
        node.delete(by)
        zk.storeNode(node)

    with session.open_zookeeper(options) as zk:
        return _change(zk, options, delete, lambda nodes: _who_deletes(zk, nodes))


def _who_deletes(zk: ZooKeeper, nodes: Sequence[Node]) -> str:
    """What becomes of nodes that are marked, in a line."""
    absent = sorted({str(node.provider) for node in nodes} - _served(zk))
    if absent:
        return f"No launcher serves provider {', '.join(absent)}: its nodes are deleted when one does."
    return f"The launchers delete {counted(len(nodes), 'node')}; nodepool delete --wait waits for it."


def _change(
    zk: ZooKeeper,
    options: argparse.Namespace,
    change: Callable[[ZooKeeper, Node], None],
    sentence: Callable[[Sequence[Node]], str],
) -> int:
    """Change nodes under their locks, and print them; returns the exit status. Raises CommandError, ZKLockException.

    :param sentence: what a person reads below, of the nodes that were changed.
    """

    def change_one(node_id: str) -> None:
        node = _find(zk, node_id)
        with _locked(zk, node):
            change(zk, node)

    failed = _each_node(options.ids, change_one)
    if getattr(options, "wait", False):
        _wait_until_deleted(zk, [node_id for node_id in options.ids if node_id not in failed])
    if changed := _print_nodes(zk, options, failed):
        terminal.hint(sentence(changed))
    return 1 if failed else 0


def _each_node(ids: Sequence[str], change: Callable[[str], None]) -> set[str]:
    """Change one node after the other. A line says what fails; the others are changed all the same.

    :return: ids of those that were not changed.
    :raises CommandError: the only one was not changed.
    """
    failed = set()
    for node_id in dict.fromkeys(ids):
        try:
            change(node_id)
        except (CommandError, ZKLockException, ZKConflict) as error:
            if len(ids) == 1:
                raise
            # Answers of released Nodepool are on standard output.
            answer = isinstance(error, CommandError) and error.answer
            print(printable_lines(str(error)), file=sys.stdout if answer else sys.stderr)
            failed.add(node_id)
    return failed


def _find(zk: ZooKeeper, node_id: str) -> Node:
    """Read a node. Raises CommandError if there is none."""
    node = zk.getNode(node_id)
    if node is None:
        raise _not_found(node_id)
    return node


def _not_found(node_id: str) -> CommandError:
    return CommandError(f"Node id {node_id} not found", answer=True)


@contextlib.contextmanager
def _locked(zk: ZooKeeper, node: Node) -> Iterator[None]:
    """Inside, the node's lock is held and the node is as it is under the lock.

    :raises ZKLockException: another process keeps the lock for longer than `LOCK_SECONDS`; the text says which.
    :raises CommandError: the node vanished.
    """
    try:
        zookeeper.take(zk, node, LOCK_SECONDS, f"{COMMAND}{session.operator()}")
    except ZKLockException as error:
        raise ZKLockException(f"{error}: {_who_has(zk, node)}") from None
    except ZKConflict:
        raise _not_found(node.key) from None
    try:
        yield
    finally:
        zookeeper.give_back(zk, node)


def _who_has(zk: ZooKeeper, node: Node) -> str:
    """Who has the lock of a node and for what, e.g. ``Zuul executor ze01 has it, in-use, project p, tenant t``."""
    try:
        owner = LockOwners(zk.client).of_node(node.key)
    except ZKException:
        owner = None
    named = {"project": project_of(node), "tenant": node.tenant_name, "request": node.allocated_to}
    known = [f"{what} {name}" for what, name in named.items() if name]
    return printable(", ".join([f"{owner or 'an unknown process'} has it", str(node.state), *known]))


def _print_nodes(zk: ZooKeeper, options: argparse.Namespace, failed: Collection[str]) -> list[Node]:
    """Print the table of the nodes that still exist; returns those of them that were changed.

    :param failed: ids of those that were not.
    """
    nodes = [node for node_id in dict.fromkeys(options.ids) if (node := zk.getNode(node_id)) is not None]
    taken = zk.nodes.locked_ids([node.key for node in nodes]) if nodes else set()
    session.show(node_table(nodes, NodeFacts(taken), wall_time()), options)
    there = {node.key for node in nodes}
    if deleted := [node_id for node_id in dict.fromkeys(options.ids) if node_id not in {*failed, *there}]:
        terminal.hint(f"Deleted: {', '.join(deleted)}")
    return [node for node in nodes if node.key not in failed]


def _wait_until_deleted(zk: ZooKeeper, ids: Sequence[str]) -> None:
    """Wait until nodes do not exist any more, and show how long it takes.

    :raises CommandError: no launcher deletes them.
    """
    served = _served(zk)
    left = list(dict.fromkeys(ids))
    with session.progress(sys.stderr) as show_items:
        while nodes := [node for node_id in left if (node := zk.getNode(node_id)) is not None]:
            left = [node.key for node in nodes]
            if any(node.provider not in served for node in nodes):
                # A launcher may have come since.
                served = _served(zk)
            for node in nodes:
                if node.provider not in served:
                    what = f"node {node.id} is deleted when one does"
                    raise CommandError(f"No launcher serves provider {node.provider}: {what}")
            show_items([_item(node) for node in nodes])
            threading.Event().wait(_LOOK_SECONDS)


def _served(zk: ZooKeeper) -> set[str | None]:
    """Providers that running launchers have pools of."""
    return {pool.provider_name for pool in zk.getRegisteredPools()}


def _item(node: Node) -> session.Item:
    since = "" if node.state_time is None else f" for {short(wall_time() - node.state_time)}"
    return session.Item(f"node {node.id}", None, f"{node.state}{since}", str(node.state))


# ``nodepool delete --now``.


def _delete_now(options: argparse.Namespace) -> int:
    """Blocks until the nodes do not exist any more. Returns 1 if one does.

    :raises CommandError: the only node or its provider is unknown, or the deletion failed.
    """
    from nodepool.config.loader import load_config

    config = load_config(options.config, options.secure)
    with session.connect(config) as zk:
        failed = _each_node(options.ids, lambda node_id: _delete_one_now(zk, config, node_id))
        others = [zk.getNode(node_id) for node_id in dict.fromkeys(options.ids) if node_id not in failed]
        stuck = [node.key for node in others if node is not None and node.state in (states.DELETING, states.DELETED)]
        _print_nodes(zk, options, failed)
    if stuck:
        what = f"Node{'s' * (len(stuck) > 1)} {', '.join(stuck)}"
        raise CommandError(f"{what} could not be deleted now; a launcher will try again")
    return 1 if failed else 0


def _delete_one_now(zk: ZooKeeper, config: Config, node_id: str) -> None:
    from nodepool.driver import gateway

    node = _find(zk, node_id)
    if node.provider is None or node.provider not in config.providers:
        raise CommandError(f"Provider {node.provider} for node {node_id} not defined on this launcher", answer=True)
    with session.progress(sys.stderr) as show_items:

        def say(text: str, state: str = "") -> None:
            show_items([session.Item(f"node {node.id}", None, text, state or text)])

        say(f"starting provider {node.provider}")
        with session.started_provider(zk, config, node.provider) as provider:
            say("waiting for its lock")
            with _locked(zk, node):
                node.delete(session.operator())
                zk.storeNode(node)
                task = gateway.start_node_cleanup(provider, node)
                # The deletion removes the node with its lock, or gives the lock back.
                begin = monotonic()
                while task.is_alive():
                    say(f"deleting for {short(monotonic() - begin)}", "deleting")
                    task.join(_LOOK_SECONDS)
            say(f"stopping provider {node.provider}")
