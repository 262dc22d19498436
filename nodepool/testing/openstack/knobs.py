# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated cloud while it runs: times, faults, quotas, services.

Every field has the same name in JSON (admin endpoint) and in Python. Times are in seconds; a range is
``[least, most]``, drawn evenly from the simulator's seeded generator.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

Range = tuple[float, float]

#: Kinds of `ErrorRule` besides statuses.
HANG, DROP, HTML = "hang", "drop", "html"
PORTAL, GARBAGE, ODD, TRUNCATED, HUGE = "portal", "garbage", "odd", "truncated", "huge"
ERROR_KINDS = (HANG, DROP, HTML, PORTAL, GARBAGE, ODD, TRUNCATED, HUGE)
#: Kinds of `BootRule`.
ERROR, NO_VALID_HOST, STUCK, NO_ADDRESS = "error", "no-valid-host", "stuck", "no-address"
#: Kinds of `DeleteRule`.
SWALLOWED, DELETE_STUCK, DELETE_ERROR = "swallowed", "stuck", "error"
#: Kinds of `UploadRule`.
SLOW, BREAK, FAIL, CORRUPT, TRUNCATE = "slow", "break", "fail", "corrupt", "truncate"


@dataclass
class _Rule:
    """Applies to a share of events, a limited number of times.

    :param rate: share of the matching events, 0 to 1.
    :param count: how many events at most; None: without end. Counts down.
    """

    rate: float = 1.0
    count: int | None = None


@dataclass
class ErrorRule(_Rule):
    """An API call that goes wrong.

    :param operation: shell pattern of operation names, for example ``compute.create_server``, ``compute.*``, ``*``.
    :param kind: an HTTP status ("500", "503", "429", "401", "403", "404", "409"), ``html`` (a proxy's page with status
        502), ``hang`` (no answer for ``seconds``), ``drop`` (the connection ends without an answer), or an answer with
        status 200: ``portal`` (a web page), ``garbage`` (bytes that are no JSON), ``odd`` (JSON of another shape),
        ``truncated`` (JSON that ends in the middle, and the connection with it) or ``huge`` (``size`` bytes of JSON).
    :param after: the call has its effect first; its answer is lost.
    :param message: text of the error, or the body of ``portal``, ``garbage`` and ``odd``; None for a usual one.
    :param retry_after: header of 429 and 503; None for none.
    :param seconds: how long ``hang`` hangs.
    :param size: of ``huge``, in bytes.
    """

    operation: str = "*"
    kind: str = "500"
    after: bool = False
    message: str | None = None
    retry_after: int | None = None
    seconds: float = 3600.0
    size: int = 100_000_000

    def __post_init__(self) -> None:
        if self.kind not in ERROR_KINDS and not (self.kind.isdigit() and 400 <= int(self.kind) <= 599):
            raise ValueError(f"kind {self.kind!r}: an HTTP status from 400 to 599, {', '.join(ERROR_KINDS)}")


@dataclass
class BootRule(_Rule):
    """A server that does not become usable.

    :param kind: ``error`` (status ERROR with ``message`` as fault, when the boot time is over), ``no-valid-host``,
        ``stuck`` (stays in BUILD) or ``no-address`` (ACTIVE without any address).
    :param flavor: only servers with this flavor name; "" for all.
    """

    kind: str = ERROR
    message: str = "Build of instance aborted: the hypervisor failed."
    flavor: str = ""

    def __post_init__(self) -> None:
        _check_kind(self.kind, (ERROR, NO_VALID_HOST, STUCK, NO_ADDRESS))


@dataclass
class DeleteRule(_Rule):
    """A deletion that was accepted (204) and does not happen.

    :param kind: ``swallowed`` (nothing changes), ``stuck`` (stays in task state "deleting" until it is released) or
        ``error`` (the server goes to ERROR).
    """

    kind: str = SWALLOWED

    def __post_init__(self) -> None:
        _check_kind(self.kind, (SWALLOWED, DELETE_STUCK, DELETE_ERROR))


@dataclass
class UploadRule(_Rule):
    """Data of an image on their way: a direct upload, one to the staging area, or an object for a task.

    :param kind: ``slow`` (``bytes_per_second``; another rule may apply, too), ``break`` (the connection ends after
        ``after_bytes``), ``fail`` (answer ``status`` after ``after_bytes``), ``corrupt`` (all seems well, but a byte is
        another one) or ``truncate`` (all seems well, but only ``after_bytes`` are kept).
    :param image: shell pattern of the names of images or objects.
    :param after_bytes: the rest of the data is not taken.
    :param message: text of the answer; None for a usual one.
    :param stays: an upload that broke off does not become ``queued`` again: nobody cleans up after it.
    """

    kind: str = BREAK
    image: str = "*"
    bytes_per_second: float = 1_000_000.0
    after_bytes: int = 0
    status: int = 500
    message: str | None = None
    stays: bool = False

    def __post_init__(self) -> None:
        _check_kind(self.kind, (SLOW, BREAK, FAIL, CORRUPT, TRUNCATE))


@dataclass
class Quota:
    """Limits of the project; -1 is unlimited, as in the real services."""

    instances: int = 10000
    cores: int = 40000
    ram: int = 200_000_000
    volumes: int = 10000
    gigabytes: int = 1_000_000
    ports: int = 100_000
    floating_ips: int = 10000
    images: int = 10000
    image_bytes: int = -1


_RULES: dict[str, type[_Rule]] = {
    "errors": ErrorRule,
    "boots": BootRule,
    "deletes": DeleteRule,
    "image_uploads": UploadRule,
}


@dataclass
class Knobs:
    """All settings with their defaults: a quick cloud without faults.

    :param latency_seconds: of each API call; ``latencies``: of operations by shell pattern, the first that matches.
    :param hidden_seconds: how long a new server is missing in lists; applies to ``hidden_rate`` of the servers.
    :param port_leak_rate: share of deleted servers whose ports stay, DOWN. ``volume_leak_rate``: the same for volumes.
    :param page_limit: most entries of one Nova, Neutron or Cinder list; ``image_page_limit``: Glance's default.
    :param token_seconds: life of a token.
    :param block_storage: whether there is a Cinder; ``floating_ips``: whether there are floating IPs.
    :param image_tasks: images are made by tasks, of objects in a Swift, and cannot be uploaded; else neither is there.
        ``image_task_failure``: what all tasks fail with. ``object_bytes``: the largest object.
    :param image_imports: methods of the interoperable import; "glance-direct" is known. ``image_import_seconds``: how
        long one takes; ``image_import_failure``: what all fail with; ``image_conversion``: the disk format they make.
    :param image_uploads: what goes wrong with data on their way.
    :param image_checksums: whether checksums are made and told: they take most of the time of an upload.
    :param image_deletion_needs_no_servers: an image cannot be deleted (409) while there are servers that it booted.
    """

    boot_seconds: Range = (0.05, 0.2)
    delete_seconds: Range = (0.02, 0.1)
    latency_seconds: Range = (0.0, 0.0)
    latencies: dict[str, Range] = field(default_factory=dict)
    hidden_seconds: Range = (0.5, 1.0)
    hidden_rate: float = 0.0
    errors: list[ErrorRule] = field(default_factory=list)
    boots: list[BootRule] = field(default_factory=list)
    deletes: list[DeleteRule] = field(default_factory=list)
    port_leak_rate: float = 0.0
    volume_leak_rate: float = 0.0
    quota: Quota = field(default_factory=Quota)
    page_limit: int = 1000
    image_page_limit: int = 25
    token_seconds: float = 3600.0
    username: str = "nodepool"
    password: str = "secret"
    block_storage: bool = True
    floating_ips: bool = True
    image_tasks: bool = False
    image_task_failure: str = ""
    object_bytes: int = 5 * 1024**3
    image_imports: list[str] = field(default_factory=list)
    image_import_seconds: Range = (0.02, 0.1)
    image_import_failure: str = ""
    image_conversion: str = ""
    image_uploads: list[UploadRule] = field(default_factory=list)
    image_checksums: bool = True
    image_deletion_needs_no_servers: bool = False
    regions: list[str] = field(default_factory=lambda: ["RegionOne"])
    availability_zones: list[str] = field(default_factory=lambda: ["nova"])

    def update(self, changes: dict[str, Any]) -> None:
        """Takes changes from JSON; what is not named stays. ``quota`` is merged, lists are replaced.

        :raises ValueError: an unknown name; nothing was changed.
        """
        known = {entry.name for entry in dataclasses.fields(self)}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"unknown settings: {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
        try:
            new = {name: self._converted(name, value) for name, value in changes.items()}
        except TypeError as error:
            raise ValueError(str(error)) from None
        for name, value in new.items():
            setattr(self, name, value)

    def _converted(self, name: str, value: Any) -> Any:
        if name == "quota":
            return dataclasses.replace(self.quota, **value)
        if name in _RULES:
            return [entry if isinstance(entry, _Rule) else _RULES[name](**entry) for entry in value]
        if name == "latencies":
            return {pattern: _range(seconds) for pattern, seconds in value.items()}
        if isinstance(getattr(self, name), tuple):
            return _range(value)
        return value

    def as_json(self) -> dict[str, Any]:
        """All settings, as `update` takes them."""
        return dataclasses.asdict(self)


def _check_kind(kind: str, known: tuple[str, ...]) -> None:
    if kind not in known:
        raise ValueError(f"kind {kind!r}: one of {', '.join(known)}")


def _range(value: Any) -> Range:
    pair = value if isinstance(value, (list, tuple)) else (value, value)
    return (float(pair[0]), float(pair[1]))
