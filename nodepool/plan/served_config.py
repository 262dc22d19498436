# SPDX-License-Identifier: Apache-2.0
"""Which launchers serve a configuration file as it stands? They publish the checksum of what they have loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nodepool.quick_dataclass import dataclass

if TYPE_CHECKING:
    from nodepool.model.launcher_status import LauncherStatus
    from nodepool.plan.attention import Registered


@dataclass(frozen=True)
class ServedConfig:
    """What one launcher serves.

    :param serves: the file; None = it does not report it, as those of Nodepool 11.
    :param digest: of the file that it has loaded. ``file``: its path there.
    :param loaded: when it was loaded, in seconds since the epoch; None = not known.
    :param refused: why its last reload failed, perhaps in part, at ``refused_at``; empty = it did not.
    """

    launcher: str
    pid: int | None = None
    serves: bool | None = None
    digest: str = ""
    file: str = ""
    loaded: float | None = None
    refused: str = ""
    refused_at: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def served_configs(
    digest: str, launchers: Sequence[LauncherStatus], registered: Iterable[Registered]
) -> list[ServedConfig]:
    """What each launcher serves, by host.

    :param digest: of the file, made as theirs.
    :param launchers: their status records.
    :param registered: all launchers.
    """
    known = {launcher.host for launcher in launchers}
    silent = {entry.host for entry in registered} - known
    found = [_served(digest, launcher) for launcher in launchers] + [ServedConfig(host) for host in silent]
    return sorted(found, key=lambda served: (served.launcher, served.pid or 0))


def _served(digest: str, launcher: LauncherStatus) -> ServedConfig:
    if not launcher.config:
        return ServedConfig(launcher.host, launcher.pid)
    last = launcher.reload
    refused = last if last is not None and not last.ok else None
    # Of one that failed, perhaps only in part, it is not known whether anything was loaded then.
    loaded = launcher.since if last is None else last.at if refused is None else None
    return ServedConfig(
        launcher.host,
        launcher.pid,
        launcher.config == digest,
        launcher.config,
        launcher.config_file,
        loaded,
        refused="" if refused is None else refused.text,
        refused_at=None if refused is None else refused.at,
    )
