# SPDX-License-Identifier: Apache-2.0
"""What pools, launchers and builders report about themselves: ``/nodepool/status/...`` (reference/zookeeper).

Then how they are registered, and what operators did to any of them.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote

from nodepool.model.event import Event
from nodepool.model.record import (
    InvalidRecord,
    TypedRecord,
    is_finite,
    optional_number,
    optional_str,
    read,
    str_list,
    whole_number,
)

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
        has it), ``keys`` (it runs, and its host keys are asked for), ``check`` (its ``ready-check`` runs), ``search``
        or ``clean`` (after a failed attempt), ``begin``, ``end``, or ``launch``, of a driver that tells no steps.
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
    :param consoles: node -> the end of its console, of the last nodes that did not pass their connection check.
    :param slow_calls: questions to the cloud that take long -> how long, in seconds.
    :param failing_calls: questions to the cloud that failed several times in a row -> the last error.
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
    consoles: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[HostStatus] = ()
    slow_calls: Mapping[str, float] = field(default_factory=dict)
    failing_calls: Mapping[str, str] = field(default_factory=dict)
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
class TenantShare:
    """What a tenant gets where others want room, too.

    :param weight: of its share, beside those of others.
    :param guaranteed: resource -> what it gets before all others of the same pipeline priority.
    """

    weight: float = 1.0
    guaranteed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CandidateStatus:
    """An upload that is tried (rules CA).

    :param step: ``check`` or ``canary``. ``since``: seconds since the epoch.
    :param text: what was counted, and what is missing to a decision.
    :param late: does it wait for so long that an operator should decide?
    """

    image: str = ""
    provider: str = ""
    build: str = ""
    step: str = ""
    since: float = 0.0
    text: str = ""
    late: bool = False


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
    :param tenant_shares: of the configuration; empty = there are no shares. ``fair_projects``: of the configuration.
    :param mixed_labels: labels with ``mixed-nodesets``, of the configuration.
    :param maintenance: what an operator did to the launcher, by whom and why; None = nothing.
    :param candidates: uploads that are tried in its providers.
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
    tenant_shares: Mapping[str, TenantShare] = field(default_factory=dict)
    fair_projects: bool = False
    mixed_labels: Sequence[str] = ()
    reload: ReloadStatus | None = None
    maintenance: str | None = None
    candidates: Sequence[CandidateStatus] = ()
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
    :param bytes_per_second: since it began.
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
    :param lacking_files: host of a builder -> image -> file that is to be imported, and that the host does not have.
    """

    builds: Mapping[str, BuildStatus] = field(default_factory=dict)
    uploads: Mapping[str, UploadStatus] = field(default_factory=dict)
    providers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacking_files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]]) -> BuilderStatus:
        """Read the status records of all builders; what cannot be read is left out."""
        builds: dict[str, BuildStatus] = {}
        uploads: dict[str, UploadStatus] = {}
        providers: dict[str, frozenset[str]] = {}
        lacking: dict[str, dict[str, str]] = {}
        for record in records:
            host, served = record.get("host"), record.get("providers")
            if isinstance(host, str) and isinstance(served, list):
                providers[host] = providers.get(host, frozenset()) | frozenset(map(str, served))
            files = record.get("lacking_files")
            if isinstance(host, str) and isinstance(files, dict):
                lacking.setdefault(host, {}).update({str(image): str(path) for image, path in files.items()})
            builds |= _readable(BuildStatus, record.get("builds"))
            uploads |= _readable(UploadStatus, record.get("uploads"))
        return cls(builds, uploads, providers, lacking)

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


# Entries of the component registry, ``/nodepool/components/<kind>/<hostname><seq>`` (reference/zookeeper 7).

RUNNING: Final = "running"
PAUSED: Final = "paused"
STOPPED: Final = "stopped"

DEFAULT_PRIORITY: Final = 100
#: Part of the id of each pool, between the full name of its host and provider and pool.
POOL_MARK: Final = "-PoolWorker."


class Component:
    """One registered daemon or pool.

    :param hostname: as ``gethostname()`` returns it.
    :param version: release of the program.
    """

    kind: ClassVar[str] = ""

    def __init__(self, hostname: str = "", version: str | None = None) -> None:
        self.hostname = hostname
        self.state = STOPPED
        self.version = version
        self.mzxid = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "hostname": self.hostname,
            "kind": self.kind,
            "model_api": 0,
            "state": self.state,
            "version": self.version,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], id: str = "") -> Self:
        """Read an entry. Raises InvalidRecord.

        :param id: name of its znode, for an entry without a host.
        """
        component = cls(str(data.get("hostname") or id), str(data.get("version", "")))
        component.state = str(data.get("state", STOPPED))
        return component


class LauncherComponent(Component):
    kind = "launcher"


class BuilderComponent(Component):
    kind = "builder"


class AccessRule(NamedTuple):
    """Who may have nodes of a pool. A request is served if every rule of the pool that concerns it allows it.

    :param tenants: as in ``allowed-tenants``.
    :param labels: it concerns requests with one of these; None = all.
    """

    tenants: tuple[str, ...]
    labels: frozenset[str] | None = None

    @classmethod
    def read(cls, entries: Any) -> tuple[Self, ...] | None:
        """The rules in an entry of the registry; None = it has none (11.0.0). Raises InvalidRecord."""
        if entries is None:
            return None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InvalidRecord("allowed_tenants is no list of objects")
        found = []
        for entry in entries:
            labels = entry.get("labels")
            named = None if labels is None else frozenset(str_list("labels", labels))
            found.append(cls(tuple(str_list("tenants", entry.get("tenants"))), named))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"tenants": list(self.tenants)} | ({} if self.labels is None else {"labels": sorted(self.labels)})


#: Key in ``capacity``, and begin of a key in ``limits``: of all pools of the provider together.
TOGETHER: Final = "*"


def amounts(found: Any) -> dict[str, float]:
    """Those of a mapping that are numbers: one that is none must not hide a pool."""
    entries = found.items() if isinstance(found, Mapping) else ()
    return {name: float(value) for name, value in entries if type(value) in (int, float) and is_finite(value)}


class PoolComponent(Component):
    """A provider-pool that serves requests. ``id`` is the launcher id that requests and nodes carry."""

    kind = "pool"

    def __init__(self, hostname: str = "", version: str | None = None) -> None:
        super().__init__(hostname, version)
        self.id = ""
        self.name = ""
        self.provider_name = ""
        self.supported_labels: list[str] = []
        self.priority = DEFAULT_PRIORITY
        self.paused = False
        #: None = its launcher, of 11.0.0, serves all tenants.
        self.allowed_tenants: tuple[AccessRule, ...] | None = None
        #: Label -> how many nodes the pool can have; '' = of any other label. `TOGETHER` = all pools of the provider.
        self.capacity: Mapping[str, float] = {}
        #: Resource -> limit of the pool and of its cloud, where tenants have shares; with `TOGETHER` in front: of the
        #: cloud, if several pools share it. 11.0.0 does not know the key.
        self.limits: dict[str, float] = {}

    def to_dict(self) -> dict[str, Any]:
        access = self.allowed_tenants
        ours = {
            "allowed_tenants": None if access is None else [rule.to_dict() for rule in access],
            "capacity": dict(self.capacity) or None,
            "limits": self.limits or None,
        }
        return {
            **super().to_dict(),
            **{key: value for key, value in ours.items() if value is not None},
            "id": self.id,
            "name": self.name,
            "paused": self.paused,
            "priority": self.priority,
            "provider_name": self.provider_name,
            "supported_labels": sorted(self.supported_labels),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], id: str = "") -> Self:
        component = super().from_dict(data, id)
        if not isinstance(data.get("id"), str):
            raise InvalidRecord("id is not a string")
        component.id = data["id"]
        component.name = str(data.get("name", ""))
        component.provider_name = str(data.get("provider_name", ""))
        component.supported_labels = str_list("supported_labels", data.get("supported_labels"))
        component.priority = whole_number("priority", data.get("priority", DEFAULT_PRIORITY))
        component.paused = data.get("paused") is True
        component.allowed_tenants = AccessRule.read(data.get("allowed_tenants"))
        component.capacity, component.limits = amounts(data.get("capacity")), amounts(data.get("limits"))
        return component


# Maintenance records: what operators paused, drained or took out of service.
#
# ``/nodepool/maintenance/<kind>/<name>``, persistent, with the name percent-encoded. Released launchers do not know
# them.


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


@dataclass(frozen=True)
class Maintenance:
    """One record.

    :param kind: of the subject, a key of `MODES`. ``name``: of the subject.
    :param by: who asked for it, e.g. ``alice@workstation``.
    :param since: and ``until``: seconds since the epoch; ``until`` None = until someone ends it.
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
