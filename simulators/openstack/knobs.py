# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated cloud while it runs: times, faults, quotas, services.

Every field has the same name in JSON (admin endpoint) and in Python. Times are in seconds; a range is
``[least, most]``, drawn evenly from the simulator's seeded generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from simulators.base.rules import ErrorRule, Range, Rule, check_kind
from simulators.base.settings import SimulatorSettings

__all__ = ["BootRule", "DeleteRule", "ErrorRule", "Knobs", "Quota", "Range", "UploadRule"]

#: Kinds of `BootRule`.
ERROR, NO_VALID_HOST, STUCK, NO_ADDRESS = "error", "no-valid-host", "stuck", "no-address"
#: Kinds of `DeleteRule`.
SWALLOWED, DELETE_STUCK, DELETE_ERROR = "swallowed", "stuck", "error"
#: Kinds of `UploadRule`.
SLOW, BREAK, FAIL, CORRUPT, TRUNCATE = "slow", "break", "fail", "corrupt", "truncate"


@dataclass
class BootRule(Rule):
    """A server that does not become usable.

    :param kind: ``error`` (status ERROR with ``message`` as fault, when the boot time is over), ``no-valid-host``,
        ``stuck`` (stays in BUILD) or ``no-address`` (ACTIVE without any address).
    :param flavor: only servers with this flavor name; "" for all. ``image``: only those of the image with this id.
    """

    kind: str = ERROR
    message: str = "Build of instance aborted: the hypervisor failed."
    flavor: str = ""
    image: str = ""

    def __post_init__(self) -> None:
        check_kind(self.kind, (ERROR, NO_VALID_HOST, STUCK, NO_ADDRESS))


@dataclass
class DeleteRule(Rule):
    """A deletion that was accepted (204) and does not happen.

    :param kind: ``swallowed`` (nothing changes), ``stuck`` (stays in task state "deleting" until it is released) or
        ``error`` (the server goes to ERROR).
    """

    kind: str = SWALLOWED

    def __post_init__(self) -> None:
        check_kind(self.kind, (SWALLOWED, DELETE_STUCK, DELETE_ERROR))


@dataclass
class UploadRule(Rule):
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
        check_kind(self.kind, (SLOW, BREAK, FAIL, CORRUPT, TRUNCATE))


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


@dataclass
class Knobs(SimulatorSettings):
    """All settings with their defaults: a quick cloud without faults.

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

    #: The driver takes all forms; other clients, such as openstacksdk, do not.
    by_turns: bool = False
    RULES: ClassVar[Mapping[str, type[Rule]]] = {
        "errors": ErrorRule,
        "boots": BootRule,
        "deletes": DeleteRule,
        "image_uploads": UploadRule,
    }

    boot_seconds: Range = (0.05, 0.2)
    delete_seconds: Range = (0.02, 0.1)
    hidden_seconds: Range = (0.5, 1.0)
    hidden_rate: float = 0.0
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
