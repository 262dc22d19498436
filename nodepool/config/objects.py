# SPDX-License-Identifier: Apache-2.0
"""The loaded configuration (reference/configuration 2 to 6). Objects compare by value, which reloads depend on.

First the settings of traces, then labels, images, limits of tenants, and the whole (`Config`).
"""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar, Final

from nodepool.config.problems import Document, Severity
from nodepool.config.webapp import WebappSettings
from nodepool.config.zookeeper import ZooKeeperServer as ZooKeeperServer
from nodepool.config.zookeeper import ZooKeeperSettings
from nodepool.driver.config import ConfigPool, ConfigValue, ImageConversion, ProviderConfig
from nodepool.model.config_keys import (
    ANY_MAPPING,
    DURATION,
    EVEN,
    FILLED_TEXT,
    FLAG,
    FREE_ROOM,
    NOT_GIVEN,
    PERCENT,
    REQUIRED,
    SECONDS,
    TENANTS,
    TEXT,
    TEXTS,
    WHOLE,
    MappingOf,
    Number,
    Sections,
    Text,
    TextOrNumber,
    ValueType,
    Whole,
    in_parts,
    in_seconds,
    key,
)
from nodepool.model.image import ImageSource, Promotion
from nodepool.model.status import TenantShare
from nodepool.tracing.spans import GRPC, HTTP, OtlpSettings, missing_module
from nodepool.version import how_to_install

# Settings of traces (reference/configuration 2): the keys of ``[tracing]`` in ``zuul.conf``.


class TracingSettings(ConfigValue):
    """The keys of ``tracing``: as in ``zuul.conf``, with underscores."""

    name_of_key = staticmethod(lambda attribute: attribute.replace("_", ".", 1))

    tracing_enabled: bool = key(
        FLAG,
        False,
        "true: spans of requests, launches, builds and uploads are sent to a collector of OpenTelemetry. It needs "
        "the extra ``tracing``.",
    )
    tracing_protocol: str = key(Text(choices=(GRPC, HTTP)), GRPC, "How they are sent.")
    tracing_endpoint: str | None = key(
        FILLED_TEXT,
        None,
        "Where the collector is: an address for gRPC, such as ``collector.example.org:4317``, or the whole URL for "
        "HTTP, such as ``https://collector.example.org:4318/v1/traces``.",
        default_text="the usual port on this host",
    )
    tracing_service_name: str = key(FILLED_TEXT, "nodepool", "What the spans are from, as the collector shows it.")
    tracing_tls_cert: str | None = key(FILLED_TEXT, None, "File with the certificate for the collector, PEM.")
    tracing_tls_key: str | None = key(FILLED_TEXT, None, "File with the private key of that certificate, PEM.")
    tracing_tls_ca: str | None = key(
        FILLED_TEXT,
        None,
        "File with the authority of the collector's certificate, PEM.",
        default_text="those of the system",
    )
    tracing_certificate_file: str | None = key(
        FILLED_TEXT, None, "As ``tracing.tls_ca``, which ``zuul.conf`` calls so for HTTP."
    )
    tracing_insecure: bool | None = key(
        FLAG, None, "gRPC: true = without TLS.", default_text="as the scheme of the endpoint says, else false"
    )
    tracing_timeout: int | None = key(
        Whole(1), None, "For sending some spans, with repeats.", unit="seconds", default_text="10"
    )
    tracing_compression: str | None = key(
        Text(choices=("none", "gzip", "deflate")), None, "Of what is sent.", default_text="none"
    )

    def tracing_settings(self) -> OtlpSettings | None:
        """How spans are sent; None = they are not."""
        if not self.tracing_enabled:
            return None
        given = {item.name: getattr(self, f"tracing_{item.name}") for item in fields(OtlpSettings)}
        return OtlpSettings(**given | {"tls_ca": self.tracing_tls_ca or self.tracing_certificate_file})


def check_tracing(settings: TracingSettings, document: Document) -> None:
    """Report what cannot work: each is an error, because no span would be sent."""

    def refuse(name: str, message: str, severity: Severity = Severity.ERROR) -> None:
        document.note(["tracing", name], message, severity)

    if not settings.tracing_enabled:
        return
    http = settings.tracing_protocol == HTTP
    missing = missing_module(settings.tracing_protocol)
    if missing is not None:
        refuse("enabled", f"{missing} is not installed; {how_to_install('tracing')}", Severity.INCOMPLETE)
    if http and settings.tracing_insecure is not None:
        refuse("insecure", f"only for protocol {GRPC}; with {HTTP} the endpoint begins with http:// or https://")
    if http and not (settings.tracing_endpoint or "http://").startswith(("http://", "https://")):
        refuse("endpoint", f"with protocol {HTTP} it begins with http:// or https://")
    if not http and settings.tracing_certificate_file:
        refuse("certificate_file", f"only for protocol {HTTP}; use tls_ca")
    if settings.tracing_certificate_file and settings.tracing_tls_ca:
        refuse("certificate_file", "it means the same as tls_ca; give one of them")
    for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(settings, f"tracing_{one}") and not getattr(settings, f"tracing_{other}"):
            refuse(one, f"it needs {other}")


#: Of a tenant. One that means no number must not let the tenant take everything.
LIMIT: Final = Whole(instead=0)


class Label(ConfigValue):
    """One entry of the top-level ``labels``."""

    ignore_equality: ClassVar[list[str]] = ["pools"]

    name: str = key(FILLED_TEXT, REQUIRED, "What jobs ask for. Unique.")
    min_ready: int = key(
        WHOLE, 0, "How many unused nodes to keep ready; 0 or less = none. Static hosts are always ready."
    )
    max_ready_age: int = key(
        Whole(instead=NOT_GIVEN), 0, "Age at which an unused ready node is replaced; 0 = never.", unit="seconds"
    )
    allowed_tenants: list[str] | None = key(
        TENANTS,
        None,
        "Tenants whose requests may have the label: names, or regular expressions between slashes, which match a whole "
        "name, such as ``/ci-.*/``. A request without a tenant may not have it. An empty list allows none.",
        default_text="all",
    )
    mixed_nodesets: bool = key(
        FLAG, False, "true: where no pool has all labels of a request, its nodes with this one come from another pool."
    )

    def __init__(self, name: str) -> None:
        self.read_keys({"name": name})
        #: Pools that have the label; filled while providers load.
        self.pools: list[ConfigPool] = []


class DiskImage(ConfigValue):
    """One entry of ``diskimages``, with what it inherits (reference/configuration 4)."""

    name: str = key(FILLED_TEXT, REQUIRED, "Unique.")
    abstract: bool = key(FLAG, False, "true: only a parent of others, never built.")
    parent: str | None = key(FILLED_TEXT, None, "Image of which this one has all that it does not say itself.")
    image_types: set[str] = key(TEXTS, set(), "Formats to build. Providers add theirs.", name="formats", convert=set)
    keep_formats: list[str] = key(TEXTS, [], "Formats that ``delete-after-upload`` keeps.", convert=list)
    delete_after_upload: bool = key(
        FLAG, False, "true: a local file is removed as soon as every provider that needs it has it."
    )
    rebuild_age: int = key(Whole(instead=NOT_GIVEN), 86400, "Age at which the image is built again.", unit="seconds")
    build_timeout: int = key(Whole(instead=NOT_GIVEN), 28800, "Limit of a build.", unit="seconds")
    release: str = key(TextOrNumber(), "", "``DIB_RELEASE`` of the build.", convert=str)
    elements: list[str] = key(TEXTS, [], "Elements of diskimage-builder; those of the parent come first.")
    env_vars: dict[str, str] = key(MappingOf(TEXT), {}, "Environment of the build, with that of the parent.")
    pause: bool = key(FLAG, False, "true: the image is not built.")
    username: str = key(TEXT, "zuul", "Zuul logs in as this user.")
    python_path: str = key(TEXT, "auto", "Python interpreter on the node, for Ansible.")
    shell_type: str | None = key(TEXT.or_null(), None, "Shell on the node, for Ansible.")
    dib_cmd: str = key(TEXT, "disk-image-create", "Command of a build; it may have arguments.")
    metadata: dict[str, Any] = key(ANY_MAPPING, {}, "Properties of the image in every cloud, with those of the parent.")
    promote_check: str | None = key(
        FILLED_TEXT,
        None,
        "Command that one node of a new upload must run well over SSH before launches try it. ``label``: a job must "
        "have used a node with the label ``LABEL@candidate``. Launchers need this key, too, then.",
        name="promote.check",
        default_text="none",
    )
    promote_check_timeout: float | None = key(
        SECONDS, None, "Limit of the check.", name="promote.check-timeout", unit="seconds", default_text="600"
    )
    promote_canary: float | None = key(
        PERCENT,
        None,
        "Part of the launches that try a new upload (:doc:`/how-to/promote-images`). Without any key of ``promote`` it "
        "is used for all at once.",
        name="promote.canary",
        default_text="10%",
        convert=in_parts,
    )
    promote_seconds: float | None = key(
        DURATION,
        None,
        "How long they try it at least, in seconds or with a unit, such as ``2h``.",
        name="promote.for",
        default_text="2h",
        convert=in_seconds,
    )
    promote_min_nodes: int | None = key(
        Whole(1), None, "How many launches try it at least.", name="promote.min-nodes", default_text="20"
    )
    promote_max_failure_ratio: float | None = key(
        Number(1, more=True),
        None,
        "It may fail so many times as often as the upload in use.",
        name="promote.max-failure-ratio",
        default_text="1.5",
    )

    source_url: str | None = key(
        FILLED_TEXT, REQUIRED, "Address with https of an image that is fetched in place of a build.", name="source.url"
    )
    source_checksum_url: str | None = key(
        FILLED_TEXT,
        REQUIRED,
        "Address with https of the vendor's list of checksums, SHA-256 or SHA-512, such as ``SHA512SUMS``. The image "
        "is fetched again when its checksum has changed.",
        name="source.checksum-url",
    )
    source_refresh: int = key(
        Whole(60, instead=NOT_GIVEN),
        86400,
        "Time between two looks at the list.",
        name="source.refresh",
        unit="seconds",
    )

    def __init__(self, name: str) -> None:
        self.read_keys({"name": name})
        #: Formats that are made of another one, and how. Providers add theirs.
        self.conversions: dict[str, ImageConversion] = {}

    @property
    def promotion(self) -> Promotion | None:
        """How a new upload becomes the one that is used; None = at once."""
        names = [one.name for one in fields(Promotion)]
        given = {name: value for name in names if (value := getattr(self, f"promote_{name}")) is not None}
        return Promotion(**given) if given else None

    @property
    def source(self) -> ImageSource | None:
        """What is fetched in place of a build; None = it is built."""
        return ImageSource(self.source_url, checksum_url=self.source_checksum_url or "") if self.source_url else None

    @property
    def meta(self) -> dict[str, Any]:
        """``metadata``, as it was called in 11.0.0."""
        return self.metadata

    @property
    def keep_image_types(self) -> set[str]:
        """``keep_formats``, as it was called in 11.0.0."""
        return set(self.keep_formats)


class TenantLimits(ConfigValue):
    """The keys of an entry of ``tenant-resource-limits``; an attribute, with hyphens, is the name of a quota."""

    #: Limit the resource of that name.
    other_keys: ClassVar[ValueType] = LIMIT

    tenant_name: str = key(FILLED_TEXT, REQUIRED, "Tenant of Zuul. Unique.")
    instances: int = key(LIMIT, None, "Nodes.", name="max-servers", default_text="unlimited")
    cores: int = key(LIMIT, None, "Cores.", name="max-cores", default_text="unlimited")
    ram: int = key(LIMIT, None, "Memory.", name="max-ram", unit="MiB", default_text="unlimited")
    volumes: int = key(LIMIT, None, "Volumes.", name="max-volumes", default_text="unlimited")
    volume_gb: int = key(LIMIT, None, "Space of volumes.", name="max-volume-gb", unit="GB", default_text="unlimited")


class ShareSection(ConfigValue):
    """The keys of an entry of ``tenant-shares``."""

    tenant_name: str = key(FILLED_TEXT, REQUIRED, "Tenant of Zuul. Unique.")
    weight: float = key(
        Number(0, more=True), 1.0, "Its part beside those of others: with 2 it gets twice as much as one with 1."
    )
    guaranteed: dict[str, float] = key(
        MappingOf(Whole(0)),
        {},
        "What its requests get before those of others of the same pipeline priority, with the names of "
        "``tenant-resource-limits``, such as ``max-servers`` and ``max-ram`` (MiB). What it does not use is lent.",
        default_text="nothing",
    )


class TopLevel(WebappSettings, TracingSettings):
    """The keys of a file, besides those of `ZooKeeperSettings`."""

    labels: dict[str, Label] = key(Sections(Label), None, "What jobs may ask for.")
    max_hold_age: int = key(
        WHOLE,
        0,
        "How long a node may stay in ``hold``; 0 or less = no limit. The limit that Zuul gave to a held node counts as "
        "well, the smaller one wins.",
        unit="seconds",
    )
    providers: dict[str, ProviderConfig] = key(Sections(ProviderConfig), None, "Where nodes come from.")
    #: tenant -> quota name (``instances``, ``cores``, ``ram``, ...) -> limit.
    tenant_resource_limits: dict[str, dict[str, float]] = key(
        Sections(TenantLimits), None, "What a tenant of Zuul may use at a time."
    )
    placement: str = key(
        Text(choices=(FREE_ROOM, EVEN)),
        FREE_ROOM,
        "Which of several pools of the same priority tries a request first. ``free-room``: each has a share of the "
        "requests that is in proportion to its room, so that all are full at the same time. ``even``: all have the "
        "same share. The same in all launchers.",
    )
    #: tenant -> its share.
    tenant_shares: dict[str, TenantShare] = key(
        Sections(ShareSection),
        None,
        "Which part of the room a tenant of Zuul gets while others want it, too. Tenants that are not named have the "
        "weight 1.",
        default_text="no shares: requests are served by their age",
    )
    fair_projects: bool = key(
        FLAG,
        False,
        "true: the projects of a tenant get equal parts of its share. It needs ``tenant-shares``.",
    )
    diskimages: dict[str, DiskImage] = key(Sections(DiskImage), None, "Images, for the image builder.")
    elements_dir: str | None = key(FILLED_TEXT, None, "``ELEMENTS_PATH`` of builds. For the image builder.")
    images_dir: str | None = key(FILLED_TEXT, None, "Directory of image files. For the image builder.")
    build_log_dir: str = key(
        FILLED_TEXT, "/var/log/nodepool/builds", "Directory of a log for each build. For the image builder."
    )
    build_log_retention: int = key(
        Whole(instead=NOT_GIVEN), 7, "Old logs that are kept of each image; negative = all. For the image builder."
    )


class Config(ZooKeeperSettings, TopLevel):
    """The whole configuration of a daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        #: Begin of the checksum of the file.
        self.digest = ""
        self.labels = {}
        self.diskimages = {}
        self.providers = {}
        self.tenant_resource_limits = {}
        self.tenant_shares = {}
        self.webapp_authenticators = []
        self.webapp_operators = []
        #: Files beside the configuration that drivers read; a change of one is a change of the configuration.
        self.watched_files: set[str] = set()

    @cached_property
    def mixed_labels(self) -> frozenset[str]:
        """Labels with ``mixed-nodesets``. For a configuration that is loaded."""
        return frozenset(label.name for label in self.labels.values() if label.mixed_nodesets)
