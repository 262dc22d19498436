# SPDX-License-Identifier: Apache-2.0
"""Maintenance records: what operators paused, drained or took out of service.

``/nodepool/maintenance/<kind>/<name>``, persistent, with the name percent-encoded. Released launchers do not know them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from nodepool.model.record import InvalidRecord, optional_number, optional_str


class Mode(enum.Enum):
    """What is done with the subject."""

    #: Nothing new is launched and no request is accepted; what runs goes on.
    PAUSE = "pause"
    #: As `PAUSE`; a launcher finishes what it does and ends.
    DRAIN = "drain"
    #: A static host is held after its job, and is not registered again.
    QUARANTINE = "quarantine"

    @property
    def done(self) -> str:
        """What the subject is then, e.g. ``paused``."""
        return {Mode.PAUSE: "paused", Mode.DRAIN: "drained", Mode.QUARANTINE: "quarantined"}[self]


#: Kinds of subjects, and what may be done with each. A pool is ``<provider>/<pool>``, a host ``<user>@<host>:<port>``
#: or the host's name alone, a launcher its host's name.
MODES: Final[Mapping[str, tuple[Mode, ...]]] = {
    "provider": (Mode.PAUSE, Mode.DRAIN),
    "pool": (Mode.PAUSE, Mode.DRAIN),
    "label": (Mode.PAUSE,),
    "host": (Mode.QUARANTINE,),
    "launcher": (Mode.PAUSE, Mode.DRAIN),
}


def host_name(name: str) -> str:
    """``host`` of ``user@host:port``."""
    return name.rpartition(":")[0].rpartition("@")[2]


@dataclass(frozen=True)
class Maintenance:
    """One record.

    :param kind: of the subject, a key of `MODES`. ``name``: of the subject.
    :param by: who asked for it, e.g. ``alice@workstation``.
    :param since: and ``until``: seconds since the epoch; ``until`` None = until somebody ends it.
    :param automatic: a launcher did it, to a static host that fails (S-16); it ends by itself.
    """

    kind: str
    name: str
    mode: Mode
    reason: str = ""
    by: str = ""
    since: float = 0.0
    until: float | None = None
    automatic: bool = False

    @property
    def text(self) -> str:
        """For an operator: what was done, by whom and why."""
        by = f" by {self.by}" if self.by else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.kind} {self.name} is {self.mode.done}{by}{why}"

    def is_over(self, now: float) -> bool:
        """Has its end come? :param now: seconds since the epoch."""
        return self.until is not None and now >= self.until

    def to_dict(self) -> dict[str, Any]:
        """The JSON object to store."""
        return {
            "mode": self.mode.value,
            "reason": self.reason,
            "by": self.by,
            "since": self.since,
            "until": self.until,
            "automatic": self.automatic,
        }

    @classmethod
    def of_record(cls, kind: str, znode: str, data: Mapping[str, Any]) -> Self:
        """Read a record.

        :param znode: its name below the kind, percent-encoded.
        :raises InvalidRecord: it is none.
        """
        modes = {mode.value: mode for mode in MODES.get(kind, ())}
        mode = data.get("mode")
        if not isinstance(mode, str) or mode not in modes:
            raise InvalidRecord(f"mode of a {kind} is {str(mode)[:40]!r}, allowed: {', '.join(modes) or 'none'}")
        return cls(
            kind,
            unquote(znode),
            modes[mode],
            optional_str("reason", data.get("reason")) or "",
            optional_str("by", data.get("by")) or "",
            optional_number("since", data.get("since")) or 0.0,
            optional_number("until", data.get("until")),
            data.get("automatic") is True,
        )


#: All records that are known, by kind and name.
MaintenanceRecords = Mapping[tuple[str, str], Maintenance]


def znode_name(name: str) -> str:
    """Name of the znode of a subject: pools and hosts have characters that paths do not allow."""
    return quote(name, safe="@: ")
