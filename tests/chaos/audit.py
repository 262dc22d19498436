# SPDX-License-Identifier: Apache-2.0
"""Did any launcher write what it had not locked? Judged from ZooKeeper's own log of all writes.

A launcher that was frozen or cut off, and whose session has ended, still believes in its locks. Whatever it writes then
with its next session shows here, however short the moment was. A record that nobody has locked may be written only

* in a transaction that takes its lock, or that makes or removes its lock directory: it fails when anybody is there. So
  does the removal of a record, which has no lock directory then;
* by the launcher that touched it last, perhaps with an earlier session: nobody has changed or locked it since.

A request that a launcher has made itself, for a part of another one, it may delete at any time, as Zuul may its own.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.transaction_log import Write
from tests.support.pool_znodes import NODES, POOLS, REQUEST_LOCKS, REQUESTS

#: Lock directories, and what is in them.
LOCK = re.compile(rf"({NODES}/[^/]+)/lock(?:/[^/]+)?|{REQUEST_LOCKS}/([^/]+)(?:/[^/]+)?")
#: A contender as Kazoo names it, with its sequence number.
CONTENDER = re.compile(r".*__(?:r?lock)__(\d+)")
RECORD = re.compile(rf"(?:{NODES}|{REQUESTS})/[^/]+")


@dataclass
class Audit:
    """Follows the writes one by one.

    ``violations`` has those that must not be; ``counts`` how many of the others there were.

    :param judged: by the record of one of its pools: is a launcher judged? Others may write as they like.
    """

    chroot: str = ""
    judged: Callable[[Mapping[str, Any]], bool] = lambda _pool: True
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: record -> sequence number of a contender -> its session; the least one has the lock.
    _contenders: dict[str, dict[int, int]] = field(default_factory=dict)
    #: session of a launcher -> ids of its pools, which tell the process
    _launchers: dict[int, set[str]] = field(default_factory=dict)
    #: request -> the session that made it
    _requestors: dict[str, int] = field(default_factory=dict)
    #: record -> the last session that changed or locked it
    _touched: dict[str, int] = field(default_factory=dict)

    def follow(self, writes: Iterable[Write]) -> Audit:
        """Looks at all writes, in their order; returns itself."""
        transactions = [list(parts) for _, parts in itertools.groupby(writes, lambda write: write.number)]
        # A launcher may write before it registers its pools.
        for write in itertools.chain.from_iterable(transactions):
            if write.kind == "create" and self._path(write).startswith(f"{POOLS}/"):
                pool = json.loads(write.data)
                if self.judged(pool):
                    self._launchers.setdefault(write.session, set()).add(str(pool["id"]))
        for parts in transactions:
            fenced = {record for part in parts if (record := _locked_record(self._path(part)))}
            for write in parts:
                self._look(write, fenced)
        return self

    def _path(self, write: Write) -> str:
        return write.path.removeprefix(self.chroot)

    def _look(self, write: Write, fenced: Container[str]) -> None:
        path = self._path(write)
        if write.kind == "end of session":
            for contenders in self._contenders.values():
                for number in [number for number, session in contenders.items() if session == write.session]:
                    del contenders[number]
        elif (record := _locked_record(path)) and (match := CONTENDER.fullmatch(path)):
            contenders = self._contenders.setdefault(record, {})
            if write.kind == "create":
                contenders[int(match[1])] = self._touched[record] = write.session
            elif write.kind == "delete":
                contenders.pop(int(match[1]), None)
        elif RECORD.fullmatch(path):
            if write.kind == "create" and path.startswith(REQUESTS):
                self._requestors[path] = write.session
            elif write.session in self._launchers and write.kind != "create":
                self._judge(write, path, path in fenced or write.kind == "delete")
            self._touched[path] = write.session

    def _judge(self, write: Write, record: str, fenced: bool) -> None:
        contenders = self._contenders.get(record)
        owner = contenders[min(contenders)] if contenders else None
        if owner == write.session:
            self.counts["with its lock"] += 1
        elif owner is None and fenced:
            self.counts["with proof that nobody has it"] += 1
        elif owner is None and self._is_same_launcher(self._touched.get(record), write.session):
            self.counts["of what it touched last"] += 1
        elif write.kind == "delete" and self._requestors.get(record) == write.session:
            self.counts["of its own request"] += 1
        else:
            whose = "a launcher" if owner in self._launchers else "a client"
            where = "nobody has its lock" if owner is None else f"{whose}, {_hex(owner)}, has its lock"
            self.violations.append(
                f"transaction {write.number:x}: {write.kind} of {record} by launcher {_hex(write.session)}, but {where}"
                f": {write.data[:200]!r}"
            )

    def _is_same_launcher(self, one: int | None, other: int) -> bool:
        return one is not None and not self._launchers.get(one, set()).isdisjoint(self._launchers[other])


def _locked_record(path: str) -> str | None:
    """The record whose lock directory, or a contender in it, has this path."""
    match = LOCK.fullmatch(path)
    return None if match is None else (match[1] or f"{REQUESTS}/{match[2]}")


def _hex(session: int) -> str:
    return f"{session & (1 << 64) - 1:x}"
