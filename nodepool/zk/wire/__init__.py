# SPDX-License-Identifier: Apache-2.0
"""All that touches the inside of Kazoo. The rest of the project uses `make_client`, and of its result

* what Kazoo documents: ``start_async``, ``get``, ``create``, ``retry``, ``Lock``, ...;
* ``operations``, ``call``, ``watch_recursive``, ``make_chroot``, ``is_leased``, ``lease_until``, ``queued_calls``,
  ``latency``, ``servers``, ``connect_failures`` and ``has_died``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.zk.wire import compatibility

if TYPE_CHECKING:
    from nodepool.zk.wire.watched_client import WatchedClient


def make_client(
    hosts: str,
    *,
    timeout: float,
    longest_pause: float,
    tls: tuple[str, str, str] | None = None,
    read_only: bool = False,
) -> WatchedClient:
    """A client that is not started. Blocks for nothing.

    :param hosts: Kazoo's host list, with the chroot.
    :param timeout: session timeout in seconds.
    :param longest_pause: seconds between two rounds through all servers while none serves.
    :param tls: PEM files of the client's certificate, its key, and the CA; None = no TLS.
    :param read_only: may it be a server that has lost the others?
    :raises ZKException: the installed Kazoo lacks something that is used here.
    """
    compatibility.check()
    # Not before the check: with another Kazoo the import is what fails.
    from nodepool.zk.wire.watched_client import make

    return make(hosts, timeout=timeout, longest_pause=longest_pause, tls=tls, read_only=read_only)
