# SPDX-License-Identifier: Apache-2.0
"""What a launcher reports about itself: ``/nodepool/status/launcher/<host>-<pid>`` (reference/zookeeper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from nodepool.model.event import Event
from nodepool.model.typed_record import TypedRecord
from nodepool.quick_dataclass import dataclass

#: Version of the format. Readers ignore keys that they do not know.
FORMAT: Final = 1
#: Events in a record.
MAX_EVENTS: Final = 200


@dataclass(frozen=True)
class ReloadStatus:
    """The last time that the configuration file changed.

    :param at: seconds since the epoch.
    :param ok: is the new configuration in effect?
    :param text: what changed, or why it is not, and what of it is.
    """

    at: float = 0.0
    ok: bool = True
    text: str = ""


@dataclass(frozen=True)
class AbsentProvider:
    """A provider of the configuration that the launcher does not serve: it has no pool that could tell.

    :param text: why not.
    :param since: when it was found out, and ``next``: when its start is tried again; in seconds since the epoch. None =
        only another configuration helps.
    """

    name: str = ""
    driver: str = ""
    text: str = ""
    since: float = 0.0
    next: float | None = None


@dataclass(frozen=True)
class LauncherStatus(TypedRecord):
    """Everything that a launcher reports, beside its pools.

    :param config_file: path of the configuration. ``config``: short hash of what is in effect.
    :param since: when it started, in seconds since the epoch.
    :param servers: of ZooKeeper, as in its connection string.
    :param state: ``running`` or ``draining``.
    :param leader: does it send the gauges of all nodes and requests to statsd? One launcher does; without statsd none.
    :param pools: ``<provider>/<pool>`` of each that it serves.
    :param absent: providers that it does not serve although they are configured.
    :param tenant_limits: tenant -> resource -> limit of the configuration.
    :param maintenance: what an operator did to the launcher, by whom and why; None = nothing.
    :param events: the last ones, the oldest first.
    """

    v: int = FORMAT
    host: str = ""
    pid: int = 0
    version: str = ""
    config_file: str = ""
    config: str = ""
    since: float = 0.0
    servers: str = ""
    state: str = "running"
    leader: bool = False
    pools: Sequence[str] = ()
    absent: Sequence[AbsentProvider] = ()
    tenant_limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reload: ReloadStatus | None = None
    maintenance: str | None = None
    events: Sequence[Event] = ()
    omitted: int = 0
