# SPDX-License-Identifier: Apache-2.0
"""Does the installed Kazoo have what is used of its inside?"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from typing import Any, Final

from nodepool.exceptions import ZKException

#: Releases of Kazoo that the tests of `nodepool.zk` passed with.
TESTED_RELEASES: Final = frozenset({"2.11.0"})

#: Module -> names in it.
NAMES: Final = {
    "kazoo.client": ("KazooClient",),
    "kazoo.exceptions": ("EXCEPTIONS", "ConnectionDropped"),
    "kazoo.handlers.threading": ("SequentialThreadingHandler",),
    "kazoo.protocol.connection": ("ConnectionHandler", "WATCH_XID"),
    "kazoo.protocol.serialization": (
        *("Auth", "CheckVersion", "Create", "Delete", "GetChildren", "GetData", "ReplyHeader", "SetData", "Sync"),
        *("Transaction", "Watch", "int_struct", "multiheader_struct", "read_buffer", "read_string", "stat_struct"),
        "write_string",
    ),
    "kazoo.protocol.states": ("KazooState", "KeeperState", "ZnodeStat"),
    "kazoo.retry": ("ForceRetryError",),
}
#: Module, class -> its methods that ours call or replace, each with the number of its arguments.
METHODS: Final = {
    ("kazoo.client", "KazooClient"): {"_call": 2, "_session_callback": 1, "unchroot": 1},
    ("kazoo.handlers.threading", "SequentialThreadingHandler"): {
        "select": 4,
        "create_connection": 1,
        "dispatch_callback": 1,
        "create_socket_pair": 0,
    },
    ("kazoo.protocol.connection", "ConnectionHandler"): {
        "zk_loop": 0,
        "_connect": 3,
        "_connect_loop": 1,
        "_invoke": 3,
        "_expand_client_hosts": 0,
        "_send_ping": 1,
        "_send_request": 2,
        "_server_pinger": 0,
        "_submit": 3,
        "_write": 2,
        "_read_socket": 1,
        "_read_header": 1,
        "_read_watch_event": 2,
    },
}
#: What a client has before it is started, and what its connection has.
CLIENT_FIELDS: Final = (
    *("_child_watchers", "_conn_retry", "_connection", "_data_watchers", "_pending", "_queue"),
    *("_session_timeout", "_stopped", "ca", "certfile", "chroot", "connected", "hosts", "keyfile"),
    *("randomize_hosts", "state", "use_ssl"),
)
#: What a lock of a client has before it is taken.
LOCK_FIELDS: Final = ("create_path", "node")
CONNECTION_FIELDS: Final = ("_connection_routine", "_read_sock", "_socket", "_write_sock", "_xid", "handler", "logger")


@cache
def check() -> None:
    """:raises ZKException: something is missing; the text names it."""
    lacking = missing()
    if lacking:
        raise ZKException(
            f"Kazoo {installed()} cannot be used, it lacks {', '.join(lacking)}: install the release of Kazoo that "
            f"Nodepool was tested with ({', '.join(sorted(TESTED_RELEASES))})"
        )


def installed() -> str:
    """The release of Kazoo."""
    # Heavy, and only needed where there is trouble.
    from importlib.metadata import version

    return version("kazoo")


def missing() -> list[str]:
    """What is used of Kazoo's inside and is not there."""
    lacking = [f"{module}.{name}" for module, names in NAMES.items() for name in names if _find(module, name) is None]
    for (module, name), methods in METHODS.items():
        owner = _find(module, name)
        if owner is not None:
            lacking += [f"{name}.{method}" for method, count in methods.items() if not _accepts(owner, method, count)]
    if not lacking:
        client = _find("kazoo.client", "KazooClient")()
        lacking += [f"KazooClient.{field}" for field in CLIENT_FIELDS if not hasattr(client, field)]
        lock = client.Lock("/lock")
        lacking += [f"Lock.{field}" for field in LOCK_FIELDS if not hasattr(lock, field)]
    if not lacking:
        connection = client._connection
        lacking += [f"ConnectionHandler.{field}" for field in CONNECTION_FIELDS if not hasattr(connection, field)]
    return lacking


def _find(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _accepts(owner: Any, method: str, count: int) -> bool:
    """Can a method be called with so many arguments?"""
    try:
        inspect.signature(getattr(owner, method)).bind(owner, *range(count))
    except (AttributeError, TypeError):
        return False
    return True
