# SPDX-License-Identifier: Apache-2.0
"""Makes ZooKeeper forget a session at once, as if its owner had died and the timeout had passed."""

from __future__ import annotations

from tests.support.plain_kazoo import PlainKazoo


def expire_session(hosts: str, session: tuple[int, bytes]) -> None:
    """Takes a session over with a second connection and closes it: its locks are gone when this returns.

    :param hosts: connection string.
    :param session: id and password, as ``KazooClient.client_id`` has them.
    """
    thief = PlainKazoo(hosts=hosts, client_id=session, timeout=20.0)
    thief.start(20)
    thief.stop()
    thief.close()
