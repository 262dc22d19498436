# SPDX-License-Identifier: Apache-2.0
"""What pools, launchers and builders report about themselves: ``/nodepool/status/...`` (reference/zookeeper)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from nodepool.model.event import Event
from nodepool.model.record import InvalidRecord, TypedRecord, read

T = TypeVar("T")

#: Version of the format. Readers ignore keys that they do not know.
FORMAT: Final = 1


@dataclass(frozen=True)
class LimitStatus:
    """One limit, and what is used of it.

    :param scope: ``pool``, ``provider``, ``tenant:<name>`` or ``cloud``.
    :param resource: ``instances``, ``cores``, ``ram`` (MiB) or another name of a `QuotaInformation`.
    :param limit: None = there is none.
    :param used: by nodes of ours.
    :param others: used by others in the same quota, as far as it is known.
    :param asked_at: when the cloud reported it, in seconds since the epoch; None = it is configured.
    """

    scope: str = ""
    resource: str = ""
    limit: float | None = None
    used: float = 0.0
    others: float = 0.0
    asked_at: float | None = None


@dataclass(frozen=True)
class LabelStatus:
    """A label that the pool cannot serve now.

    :param code: a `ReasonCode` value. ``text``: the cause, and what corrects it.
    :param since: seconds since the epoch.
    """

    code: str = ""
    text: str = ""
    since: float = 0.0


@dataclass(frozen=True)
class PauseStatus:
    """Why a provider launches nothing now.

    :param code: a `ReasonCode` value.
    :param since: when it began, and ``next``: when it is tried again, in seconds since the epoch; None = not known.
    """

    code: str = ""
    text: str = ""
    since: float | None = None
    next: float | None = None


@dataclass(frozen=True)
class WaitingStatus:
    """Requests of one kind that wait in the pool for the same.

    :param labels: one for each node of such a request, sorted.
    :param provider: the only one that may serve them; None = any.
    :param oldest: when the one that waits longest was submitted, in seconds since the epoch; None = not known.
    :param code: a `ReasonCode` value. ``since``: since when it is this one.
    :param numbers: what the text counts.
    :param min_ready: do they keep ``min-ready`` nodes? No job waits for these.
    :param mark: distinguishes kinds that agree in labels, provider and tenant, e.g. by who declined their requests.
    """

    labels: Sequence[str] = ()
    provider: str | None = None
    tenant: str | None = None
    count: int = 0
    oldest: float | None = None
    code: str = ""
    text: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    since: float = 0.0
    mark: str = ""
    min_ready: bool = False


@dataclass(frozen=True)
class RequestStatus:
    """A request that the pool is serving, or that it declined.

    :param stage: a value of `plan.triage.Stage`; ``done`` = declined.
    :param since: seconds since the epoch.
    """

    id: str = ""
    stage: str = ""
    code: str = ""
    text: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    since: float = 0.0


@dataclass(frozen=True)
class FailedLaunch:
    """The last launch that failed.

    :param code: a launch outcome or `ReasonCode` value. ``at``: seconds since the epoch. ``node``: id.
    """

    code: str = ""
    text: str = ""
    at: float = 0.0
    node: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class LaunchStatus:
    """A launch that has been in progress for a while.

    :param node: id.
    :param step: ``wait`` (nothing was called for yet), ``call`` (the creation is not answered), ``build`` (the cloud
        has it), ``keys`` (it runs, and its host keys are asked for), ``search`` or ``clean`` (after a failed attempt),
        ``begin``, ``end``, or ``launch``, of a driver that tells no steps.
    :param text: what the driver calls the step, or says that it waits for.
    :param begun: when the launch began, ``since``: when the step began, and ``ends``: when ``option`` ends it, in
        seconds since the epoch; None = never.
    :param usual: how long launches of the label take, in seconds; None = not known.
    :param slow: does it take too long?
    """

    node: str = ""
    label: str = ""
    step: str = ""
    text: str = ""
    begun: float = 0.0
    since: float = 0.0
    ends: float | None = None
    option: str = ""
    usual: float | None = None
    slow: bool = False


@dataclass(frozen=True)
class LaunchesStatus:
    """Launches of the pool; those that ended are of the last 15 minutes."""

    running: int = 0
    ok_15m: int = 0
    failed_15m: int = 0
    last_error: FailedLaunch | None = None


@dataclass(frozen=True)
class HostStatus:
    """A host of a static pool.

    :param name: ``<user>@<host>:<port>``, as in the log.
    :param up: None = it was not checked yet.
    :param text: why it is not up; empty when it is.
    :param since: when ``up`` became what it is, or the quarantine began; ``next``: when it is tried again; in seconds
        since the epoch.
    :param quarantine: why it is taken out of service; None = it is in service.
    :param slots: nodes that it can hold. ``nodes``: ids of those that it holds.
    :param pool: name of its pool. ``labels``: that it serves.
    """

    name: str = ""
    up: bool | None = None
    text: str = ""
    since: float = 0.0
    next: float | None = None
    quarantine: str | None = None
    slots: int = 1
    nodes: Sequence[str] = ()
    pool: str = ""
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class PoolStatus(TypedRecord):
    """Everything that a pool reports.

    :param id: launcher id of the pool, as in requests and nodes. ``host``: of the launcher.
    :param state: ``running``, ``paused`` (a request waits for room), ``unavailable`` (the provider launches nothing:
        ``code`` and ``text`` say why), ``maintenance`` (paused or drained by an operator) or ``starting``.
    :param since: when the state began, in seconds since the epoch.
    :param next: when an unavailable provider is tried again, in seconds since the epoch; None = not known.
    :param labels: only those that cannot be served now.
    :param launching: the launches that have been in progress for longest.
    :param slow_calls: questions to the cloud that take long -> how long, in seconds.
    :param missing: nodes that may be lost, or in another place -> when they count as lost, in seconds since the epoch.
    :param other_installations: other installation -> things that it has in the cloud for a provider of the same name.
    :param omitted: entries that were left out of the lists below, because the record is bounded.
    """

    v: int = FORMAT
    id: str = ""
    host: str = ""
    version: str = ""
    provider: str = ""
    pool: str = ""
    driver: str = ""
    state: str = "starting"
    since: float = 0.0
    code: str | None = None
    text: str | None = None
    next: float | None = None
    limits: Sequence[LimitStatus] = ()
    labels: Mapping[str, LabelStatus] = field(default_factory=dict)
    waiting: Sequence[WaitingStatus] = ()
    requests: Sequence[RequestStatus] = ()
    declined: Sequence[RequestStatus] = ()
    launches: LaunchesStatus = field(default_factory=LaunchesStatus)
    launching: Sequence[LaunchStatus] = ()
    hosts: Sequence[HostStatus] = ()
    slow_calls: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    other_installations: Mapping[str, int] = field(default_factory=dict)
    omitted: int = 0


# What a launcher reports about itself: ``/nodepool/status/launcher/<host>-<pid>`` (reference/zookeeper).

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


# How far builders are with their builds and uploads, as they report it in ZooKeeper.


@dataclass(frozen=True)
class BuildStatus:
    """A build that runs.

    :param step: what diskimage-builder does just now, in its own words.
    :param estimate: how long the build may take in all, in seconds: as long as the last one; None = there was none.
    """

    step: str = ""
    estimate: float | None = None


@dataclass(frozen=True)
class UploadStatus:
    """An upload that runs. None = not reported.

    :param percent: 0 to 100.
    :param bytes_per_second: of late.
    :param size: of the file, in bytes.
    """

    percent: float | None = None
    bytes_per_second: float | None = None
    size: float | None = None


@dataclass(frozen=True)
class BuilderStatus:
    """What all builders report together.

    :param builds: ``<image>/<build id>`` -> progress.
    :param uploads: ``<image>/<build id>/<provider>/<upload id>`` -> progress.
    :param providers: host of a builder -> providers whose uploads it looks after. Older releases do not report them.
    """

    builds: Mapping[str, BuildStatus] = field(default_factory=dict)
    uploads: Mapping[str, UploadStatus] = field(default_factory=dict)
    providers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]]) -> BuilderStatus:
        """Read the status records of all builders; what cannot be read is left out."""
        builds: dict[str, BuildStatus] = {}
        uploads: dict[str, UploadStatus] = {}
        providers: dict[str, frozenset[str]] = {}
        for record in records:
            host, served = record.get("host"), record.get("providers")
            if isinstance(host, str) and isinstance(served, list):
                providers[host] = providers.get(host, frozenset()) | frozenset(map(str, served))
            builds |= _readable(BuildStatus, record.get("builds"))
            uploads |= _readable(UploadStatus, record.get("uploads"))
        return cls(builds, uploads, providers)

    def build(self, image: str, build_id: str) -> BuildStatus:
        """Progress of a build; one without anything when no builder tells of it."""
        return self.builds.get(f"{image}/{build_id}") or BuildStatus()

    def upload(self, image: str, build_id: str, provider: str, upload_id: str) -> UploadStatus:
        """Progress of an upload; one without anything when no builder tells of it."""
        return self.uploads.get(f"{image}/{build_id}/{provider}/{upload_id}") or UploadStatus()


def _readable(kind: type[T], entries: Any) -> dict[str, T]:
    """Those entries of a record that can be read."""
    found: dict[str, T] = {}
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        with contextlib.suppress(InvalidRecord):
            found[key] = read(kind, entry)
    return found
