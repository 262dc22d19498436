# SPDX-License-Identifier: Apache-2.0
"""`MaintenanceStore`: reads and writes maintenance records (reference/zookeeper)."""

from __future__ import annotations

import logging

from kazoo.exceptions import BadVersionError, NoNodeError

from nodepool import log_names
from nodepool.model.maintenance import MODES, Maintenance, MaintenanceRecords, znode_name
from nodepool.model.record import InvalidRecord
from nodepool.zk import paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import translated

log = logging.getLogger(log_names.ZOOKEEPER)


def decode(kind: str, znode: str, data: bytes) -> Maintenance:
    """The record in a znode. Raises InvalidRecord."""
    return Maintenance.of_record(kind, znode, paths.decode(data))


class MaintenanceStore:
    """Reads ZooKeeper directly. Every method blocks for round trips and raises ZKException."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    def read_all(self) -> MaintenanceRecords:
        """All records, also those that are over; bad ones are logged and skipped."""
        kinds = list(MODES)
        listed = transactions.read_children(self._client, [paths.maintenance(kind) for kind in kinds])
        znodes = [(kind, name) for kind, names in zip(kinds, listed, strict=True) for name in names or ()]
        answers = transactions.read_data(self._client, [paths.maintenance(*znode) for znode in znodes])
        found = {}
        for (kind, name), answer in zip(znodes, answers, strict=True):
            if answer is None:
                continue
            try:
                record = decode(kind, name, answer[0])
            except InvalidRecord as problem:
                log.error("Ignoring %s: %s", paths.maintenance(kind, name), problem)
                continue
            found[kind, record.name] = record
        return found

    def put(self, record: Maintenance) -> None:
        """Write a record, in place of one of the same subject."""
        data = paths.encode(record.to_dict())
        transactions.replace(self._client, _path(record), lambda known: known if known == data else data)

    def put_automatic(self, record: Maintenance, now: float) -> bool:
        """Write a record of a launcher, unless there is one of an operator that holds.

        Of launchers that do so at the same time one wins; what it says is as good.

        :param now: seconds since the epoch.
        :return: is a record of a launcher there now?
        """
        data = paths.encode(record.to_dict())

        def renewed(known: bytes | None) -> bytes:
            return data if known is None or _may_be_replaced(record, known, now) else known

        return transactions.replace(self._client, _path(record), renewed) == data

    def remove(self, kind: str, name: str) -> bool:
        """Remove the record of a subject. False = there was none."""
        with translated():
            try:
                self._client.kazoo.delete(paths.maintenance(kind, znode_name(name)))
            except NoNodeError:
                return False
        return True

    def remove_if_over(self, record: Maintenance, now: float) -> bool:
        """Remove a record whose end has come, unless somebody else has, or has written another one.

        :param now: seconds since the epoch.
        :return: was it removed here?
        """
        path = _path(record)
        with translated():
            try:
                data, stat = self._client.kazoo.get(path)
                if not _is_over(record, data, now):
                    return False
                self._client.kazoo.delete(path, version=stat.version)
            except (NoNodeError, BadVersionError):
                return False
        return True


def _path(record: Maintenance) -> str:
    return paths.maintenance(record.kind, znode_name(record.name))


def _may_be_replaced(record: Maintenance, known: bytes, now: float) -> bool:
    """May the record of a launcher take the place of what is there?"""
    try:
        there = decode(record.kind, znode_name(record.name), known)
    except InvalidRecord:
        return True
    return there.automatic or there.is_over(now)


def _is_over(record: Maintenance, data: bytes, now: float) -> bool:
    try:
        return decode(record.kind, znode_name(record.name), data).is_over(now)
    except InvalidRecord:
        return False
