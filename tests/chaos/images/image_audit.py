# SPDX-License-Identifier: Apache-2.0
"""Did any builder write what it had not locked, or what it must not? Judged from ZooKeeper's own log of all writes.

* B-11: a build begins, and becomes ready, only under the lock of its image.
* U-2: an upload begins, and becomes ready, only under the lock of its build and provider.
* U-12: no upload becomes ready after one of a newer build became ready there.
* R-1, R-2: a builder marks no ready build or upload that is one of the two newest and still wanted. An upload that has
  just become ready, still under the same lock, may find that one of a newer build is ready, too (U-12).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.transaction_log import Write
from tests.support.image_znodes import IMAGES

BUILD = re.compile(rf"{IMAGES}/(?P<image>[^/]+)/builds/(?P<build>[^/]+)")
UPLOAD = re.compile(rf"{BUILD.pattern}/providers/(?P<provider>[^/]+)/images/(?P<upload>[^/]+)")
CONTENDER = re.compile(r"(?P<lock>.*/lock)/[^/]*?(?P<number>\d{10})")
KEPT = 2


@dataclass
class _Record:
    """A build or an upload.

    :param order: state time of a ready build: which one is newer.
    :param by_hand: a fault changed it.
    :param tenure: the lock and its first contender when the record was written.
    """

    image: str
    build: str
    provider: str
    state: str
    order: float = 0.0
    by_hand: bool = False
    tenure: tuple[str, int] | None = None


@dataclass
class ImageAudit:
    """Follows the writes one by one.

    :param hands: sessions that may write as they like.
    :param removable: images that are wanted only now and then.
    """

    chroot: str
    hands: Collection[int]
    removable: Collection[str] = ()
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: lock directory -> number of a contender -> its session; the least one has the lock.
    _contenders: dict[str, dict[int, int]] = field(default_factory=dict)
    #: By path. A record that a hand removed stays: builders may not know yet.
    _builds: dict[str, _Record] = field(default_factory=dict)
    _uploads: dict[str, _Record] = field(default_factory=dict)

    def follow(self, writes: Iterable[Write]) -> ImageAudit:
        """Looks at all writes, in their order; returns itself."""
        for write in writes:
            path = write.path.removeprefix(self.chroot)
            if write.kind == "end of session":
                self._end(write.session)
            elif match := CONTENDER.fullmatch(path):
                contenders = self._contenders.setdefault(match["lock"], {})
                if write.kind == "create":
                    contenders[int(match["number"])] = write.session
                elif write.kind == "delete":
                    contenders.pop(int(match["number"]), None)
            elif (match := UPLOAD.fullmatch(path)) and match["upload"] != "lock":
                self._change(write, path, match, self._uploads)
            elif (match := BUILD.fullmatch(path)) and match["build"] != "lock":
                self._change(write, path, match, self._builds)
        return self

    def _end(self, session: int) -> None:
        for contenders in self._contenders.values():
            for number in [number for number, owner in contenders.items() if owner == session]:
                del contenders[number]

    def _change(self, write: Write, path: str, match: re.Match[str], records: dict[str, _Record]) -> None:
        if write.kind == "delete":
            self._forget(write, path, records)
            return
        content = _decoded(write.data)
        if content is None:
            if path in records:
                records[path].by_hand = True
            return
        provider = match.groupdict().get("provider", "")
        before = records.get(path)
        record = _Record(match["image"], match["build"], provider, str(content.get("state")))
        record.by_hand = before is not None and before.by_hand
        record.tenure = self._tenure(path)
        record.order = before.order if before is not None else 0.0
        if record.state == "ready" and not provider:
            record.order = float(content.get("state_time") or 0)
        if write.session in self.hands:
            record.by_hand = True
        else:
            self._judge(write, path, record, before)
        records[path] = record

    def _forget(self, write: Write, path: str, records: dict[str, _Record]) -> None:
        if write.session in self.hands:
            if path in records:
                records[path].by_hand = True
        else:
            records.pop(path, None)

    def _judge(self, write: Write, path: str, record: _Record, before: _Record | None) -> None:
        if record.state in ("building", "uploading", "ready"):
            self._judge_lock(write, path, record)
        if record.provider and record.state == "ready" and (before is None or before.state != "ready"):
            self._judge_age(write, path, record)
        if record.state == "deleting" and before is not None and before.state == "ready" and not before.by_hand:
            self._judge_deletion(write, path, record, before)

    def _tenure(self, path: str) -> tuple[str, int] | None:
        lock = _lock_of(path)
        contenders = self._contenders.get(lock)
        return (lock, min(contenders)) if contenders else None

    def _judge_lock(self, write: Write, path: str, record: _Record) -> None:
        lock = _lock_of(path)
        contenders = self._contenders.get(lock)
        owner = contenders[min(contenders)] if contenders else None
        kind = "upload" if record.provider else "build"
        if owner == write.session:
            self.counts[f"{kind} {record.state} with its lock"] += 1
        else:
            whose = "nobody" if owner is None else f"{owner & (1 << 64) - 1:x}"
            self.violations.append(
                f"transaction {write.number:x}: {path} became {record.state}, but {whose} has {lock}"
            )

    def _order(self, record: _Record) -> float:
        build = self._builds.get(f"{IMAGES}/{record.image}/builds/{record.build}")
        return 0.0 if build is None else build.order

    def _is_by_hand(self, upload: _Record) -> bool:
        """Did a fault change an upload or its build, which may say no more how old it is?"""
        build = self._builds.get(f"{IMAGES}/{upload.image}/builds/{upload.build}")
        return upload.by_hand or (build is not None and build.by_hand)

    def _judge_age(self, write: Write, path: str, record: _Record) -> None:
        own = self._order(record)
        for other_path, other in self._uploads.items():
            same = (other.image, other.provider) == (record.image, record.provider)
            if same and other.state == "ready" and not self._is_by_hand(other) and own < self._order(other):
                self.violations.append(
                    f"transaction {write.number:x}: {path} became ready after {other_path} of a newer build"
                )
                return
        self.counts["uploads that are the newest"] += 1

    def _judge_deletion(self, write: Write, path: str, record: _Record, before: _Record) -> None:
        if record.image in self.removable:
            return
        records = self._uploads if record.provider else self._builds
        rivals = [
            other
            for other_path, other in records.items()
            if other_path != path and (other.image, other.provider) == (record.image, record.provider)
        ]
        own = self._order(record)
        newer = [other for other in rivals if (other.state == "ready" or other.by_hand) and self._order(other) >= own]
        build = self._builds.get(f"{IMAGES}/{record.image}/builds/{record.build}")
        asked = record.provider and (build is None or build.by_hand or build.state == "deleting")
        just_ready = record.provider and record.tenure is not None and record.tenure == before.tenure
        if len(newer) >= (1 if just_ready else KEPT) or asked:
            self.counts["deletions of what is not wanted"] += 1
        else:
            self.violations.append(f"transaction {write.number:x}: {path} was wanted, and is deleting now")


def _lock_of(path: str) -> str:
    return f"{path.rpartition('/')[0]}/lock"


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
