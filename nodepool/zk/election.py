# SPDX-License-Identifier: Apache-2.0
"""Elects one launcher for work that only one launcher may do (reference/zookeeper 2, ``elections``)."""

from __future__ import annotations

import logging

from nodepool import log_names
from nodepool.exceptions import ZKException, ZKLockException
from nodepool.zk import locks, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import ZkLock


class Election:
    """Callers ask from time to time whether this launcher leads. No thread waits in between.

    :param name: of the election, e.g. ``stats``.
    :param identifier: who we are, for people who look.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient, name: str, identifier: str) -> None:
        self._client = client
        self._path = paths.election(name)
        self._identifier = identifier
        self._lock: ZkLock | None = None
        self._epoch = -1

    def is_leader(self) -> bool:
        """Do we lead? Tries to win if nobody does. Blocks for a few round trips, without an answer: False."""
        if not self._client.connected:
            return False
        if self._lock is not None and self._epoch == self._client.session_epoch:
            return True
        self._lock = None
        epoch = self._client.session_epoch
        try:
            self._lock = locks.acquire(self._client, self._path, blocking=False, identifier=self._identifier)
        except ZKLockException:
            return False
        except ZKException as error:
            self.log.warning("Election %s: %s", self._path, error)
            return False
        self._epoch = epoch
        self.log.info("Leading in %s", self._path)
        return True

    def resign(self) -> None:
        """Let another process lead. Does not wait for a connection: without one, that is when there is one again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            locks.leave(self._client, lock.contender)
