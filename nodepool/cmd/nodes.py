# SPDX-License-Identifier: Apache-2.0
"""Commands about nodes and requests (reference/commands 2).

First ``nodepool list`` (``nodes``) and ``request-list`` (``requests``), with the options that choose nodes and
requests. Then ``hold`` and ``delete``, and the wait until nodes are deleted. Then ``delete --now``, which deletes nodes
in the foreground, through their providers. Last ``request``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import termios
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.cmd import session
from nodepool.cmd.app import CommandError
from nodepool.exceptions import ZKConflict, ZKException, ZKLockException
from nodepool.listing import table, terminal
from nodepool.listing.nodes import Filter, NodeFacts, has_id, node_table, project_of
from nodepool.listing.requests import request_table
from nodepool.listing.table import Table, date_and_time, printable, printable_lines
from nodepool.model import states
from nodepool.model.event import counted, short
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.request import REQUEST_COMMAND, NodeRequest
from nodepool.zk import paths, zookeeper
from nodepool.zk.transactions import COMMAND, LockOwners
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.plan.explain import WaitCause
    from nodepool.plan.observed import Observed

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
        causes = {} if as_released else _causes(zk, requests, everything)
        return request_table(requests, now, causes, place=place)

    empty = "" if options.ids else session.none_of("request", everything=wanted.everything)
    status = session.show_listing(options, look, empty, caches=True)
    _refuse_missing("Request", options, everything)
    return status


def _causes(
    zk: ZooKeeper, requests: Sequence[NodeRequest], everything: Sequence[NodeRequest]
) -> Mapping[str, WaitCause]:
    """Why requests wait or failed.

    :param everything: all requests, of which others may come first.
    """
    if all(request.state == states.FULFILLED for request in requests):
        return {}
    from nodepool.plan.explain import causes

    return causes(requests, _seen(zk, everything))


def _seen(zk: ZooKeeper, everything: Iterable[NodeRequest]) -> Observed:
    """What requests wait for follows from this. Blocks for some round trips. :param everything: all requests."""
    from nodepool.plan.observed import Observed
    from nodepool.zk.status import read_pools

    return Observed(
        now=wall_time(),
        requests={request.key: request for request in everything},
        registered=zk.getRegisteredPools(),
        statuses=read_pools(zk.client),
        maintenance=list(zk.maintenance.read_all().values()),
    )


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
        # Without a connection it ends with the session.
        if zk.client.connected:
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


# ``nodepool request``: nodes for a person, without Zuul. First the whole of it: ask, wait, take, use, give back. Then
# each of these, in this order. The command does what Zuul does (reference/zookeeper 4 and 5), but its request is
# ephemeral: what ends the command ends the request, and launchers clean up as they do after a Zuul that died.

#: That of a normal pipeline of Zuul.
PRIORITY: Final = "200"
#: How long the lock of a node is waited for, in seconds, as Zuul does.
ZUUL_LOCK_SECONDS: Final = 30.0
#: Between two looks at the request, in seconds.
_ASK_SECONDS: Final = 0.2
#: Between two looks at what it waits for, in seconds: pools report at most so often.
_WHY_SECONDS: Final = 2.0
#: How long the reason of a failure is waited for, in seconds: pools report it a while after the failure.
_REASON_SECONDS: Final = 5.0

#: Writes a line for the person.
Say = Callable[[str], None]


def do_request(options: argparse.Namespace) -> int:
    """``nodepool request``; blocks until the nodes are given back.

    :raises CommandError: the request failed, was not served in time, or its nodes were lost.
    """
    # What is no answer goes to standard error, where a program that reads JSON does not look.
    say: Say = partial(print, file=sys.stderr if options.format == "json" else sys.stdout, flush=True)
    # The end of the terminal, and `kill`, are as Ctrl-C: the nodes are given back. `nohup` keeps its meaning.
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    with session.open_zookeeper(options) as zk, contextlib.ExitStack() as cleanup:
        begin = monotonic()
        request = _submit(zk, options)
        cleanup.callback(_withdraw, zk, request)
        request = _wait_for_nodes(zk, request, options.timeout)
        nodes = _take(zk, request, cleanup, say)
        zk.requests.delete(request)
        for node in nodes:
            node.state = states.IN_USE
            zk.storeNode(node)
        found = [_as_object(label, node) for label, node in zip(request.node_types, nodes, strict=True)]
        with contextlib.suppress(KeyboardInterrupt):
            say(f"Request {request.id} is fulfilled after {short(monotonic() - begin)}.")
            if options.format == "json":
                print(json.dumps({"request": request.id, "nodes": found}), flush=True)
            else:
                print("\n".join(printable(line) for one in found for line in _as_lines(one)), flush=True)
            _keep(zk, nodes, options.hold, say)
    return 0


def _submit(zk: ZooKeeper, options: argparse.Namespace) -> NodeRequest:
    """Write the request, as Zuul's scheduler does."""
    request = NodeRequest()
    request.state, request.node_types = states.REQUESTED, list(options.labels)
    request.requestor = f"{REQUEST_COMMAND} {session.operator()}"
    request.event_id, request.tenant_name = uuid.uuid4().hex, options.tenant
    zk.requests.create(request, PRIORITY)
    return request


def _wait_for_nodes(zk: ZooKeeper, request: NodeRequest, timeout: float | None) -> NodeRequest:
    """Wait until the request is fulfilled, and show on standard error what it waits for.

    :param timeout: in seconds; None = as long as it takes.
    :raises CommandError: it failed, was not served in time, or was deleted by another process.
    """
    begin, look_at, code, text = monotonic(), monotonic() + _ASK_SECONDS, "", "waits for a launcher"
    with session.progress(sys.stderr) as show_items:
        while (found := zk.requests.get(request.key)) and found.state not in (states.FULFILLED, states.FAILED):
            # What is served at once has no reason to wait.
            if monotonic() >= look_at:
                code, text = _why(zk, found)
                look_at = monotonic() + _WHY_SECONDS
                show_items([session.Item(f"request {request.id}", None, text, f"{code} {found.state}")])
            if timeout is not None and monotonic() - begin > timeout:
                raise CommandError(f"request {request.id} has no nodes after {short(timeout)}: it {text}")
            threading.Event().wait(_ASK_SECONDS)
    end = monotonic() + _REASON_SECONDS
    while found is not None and found.state == states.FAILED:
        code, text = _why(zk, found)
        if code != ReasonCode.DECLINED_BEFORE.value or monotonic() > end:
            raise CommandError(f"request {request.id} {text}")
        threading.Event().wait(_ASK_SECONDS)
    if found is None:
        raise CommandError(f"another process has deleted request {request.id}")
    return found


def _why(zk: ZooKeeper, request: NodeRequest) -> tuple[str, str]:
    """Code and sentence of what a request waits for, or why it failed. Blocks for some round trips."""
    from nodepool.plan.explain import explain_request

    answer = explain_request(request, _seen(zk, [*zk.nodeRequestIterator(), request]))
    return answer.code, answer.text


def _take(zk: ZooKeeper, request: NodeRequest, cleanup: contextlib.ExitStack, say: Say) -> list[Node]:
    """Lock the nodes of a fulfilled request, as Zuul's executor does.

    :param cleanup: gives back each node that was locked.
    :raises CommandError: a node is not there, or not for the request.
    :raises ZKLockException: another process keeps the lock of one.
    """
    found = [_find(zk, node_id) for node_id in request.nodes]
    for node in found:
        try:
            zookeeper.take(zk, node, ZUUL_LOCK_SECONDS, f"{COMMAND}{session.operator()}")
        except ZKConflict:
            raise _not_found(node.key) from None
        cleanup.callback(_give_back, zk, node, say)
        if node.allocated_to != request.key:
            raise CommandError(f"node {node.id} is for request {node.allocated_to}, not for {request.id}")
    return found


def _as_object(label: str, node: Node) -> dict[str, Any]:
    """What a person, or a program, needs to use a node. A port that is an object has a token in it: it is not shown.

    ``command`` connects to it; None = none is known.
    """
    port = node.connection_port if type(node.connection_port) is int else None
    pod = node.connection_port if isinstance(node.connection_port, dict) else {}
    address = node.interface_ip or node.public_ipv4 or node.private_ipv4 or node.public_ipv6 or node.hostname
    user, command = f"{node.username}@" if node.username else "", None
    if node.connection_type in (None, "ssh"):
        command = f"ssh {'' if port == 22 else f'-p {port} '}{user}{address}"
    elif pod.get("pod"):
        command = f"kubectl --namespace {pod.get('namespace')} exec -it {pod['pod']} -- sh"
    return {
        "id": node.id,
        "label": label,
        "provider": node.provider,
        "pool": node.pool,
        "address": address,
        "port": port,
        "username": node.username,
        "connection_type": node.connection_type or "ssh",
        "host_keys": list(node.host_keys),
        "command": command,
    }


def _as_lines(one: dict[str, Any]) -> Iterator[str]:
    """The same for a person: lines to copy."""
    yield f"{one['label']}: node {one['id']} in {one['provider']}/{one['pool'] or '-'}"
    place = one["address"] if one["port"] in (None, 22) else f"[{one['address']}]:{one['port']}"
    yield f"  {one['command'] or '{connection_type} {username} '.format(**one) + place}"
    for key in one["host_keys"]:
        yield f"  known_hosts: {place} {key}"


def _keep(zk: ZooKeeper, nodes: Sequence[Node], seconds: float | None, say: Say) -> None:
    """Keep the nodes until the time is over, Enter, or Ctrl-C, which is a KeyboardInterrupt.

    :param seconds: None = without end.
    :raises CommandError: the session with ZooKeeper has ended, and the locks with it.
    """
    terminal = sys.stdin is not None and sys.stdin.isatty()
    until = "" if seconds is None else f" or until {date_and_time(wall_time() + seconds)}"
    say(f"Yours until {'Enter or ' if terminal else ''}Ctrl-C{until}.")
    end = None if seconds is None else monotonic() + seconds
    listen = sys.stdin is not None
    if terminal and not _in_background():
        # What was typed while the nodes were waited for.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    while (left := 1.0 if end is None else min(1.0, end - monotonic())) > 0:
        if select.select([sys.stdin] if listen and not _in_background() else [], [], [], left)[0]:
            typed = os.read(sys.stdin.fileno(), 4096)
            if b"\n" in typed or (terminal and not typed):
                return
            listen = bool(typed)
        try:
            for node in nodes:
                zk.nodes.surely_locked(node)
        except ZKConflict:
            raise CommandError("the session with ZooKeeper has ended: the launchers delete its nodes") from None


def _in_background() -> bool:
    """Would a look at what is typed for another command, or a change of the terminal, stop this one?"""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    # It is no terminal, or not the one of a shell.
    return False


def _withdraw(zk: ZooKeeper, request: NodeRequest) -> None:
    """Delete the request. Without a connection there is no wait for one: it ends with the session."""
    if zk.client.connected:
        zk.requests.delete(request)


def _give_back(zk: ZooKeeper, node: Node, say: Say) -> None:
    """Give a node back, as Zuul does: one that was in use is not used again. The others are free.

    One whose lock was lost belongs to the launchers already; without a connection it is theirs at the end of the
    session.
    """
    if not zk.client.connected:
        return
    with contextlib.suppress(ZKConflict):
        zk.nodes.surely_locked(node)
        in_use = node.state == states.IN_USE
        if in_use:
            node.state = states.USED
            zk.storeNode(node)
        zookeeper.give_back(zk, node)
        say(f"Node {node.id} is given back{': it was used, and is deleted' if in_use else ''}.")
