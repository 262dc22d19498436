# SPDX-License-Identifier: Apache-2.0
"""The sections of a configuration other than ZooKeeper, images and providers (reference/configuration 2, 3, 6)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

import voluptuous as v

from nodepool.config.marks import Document
from nodepool.config.objects import Config, Label
from nodepool.config.problems import Problems, Severity, did_you_mean
from nodepool.config.schema import Checker
from nodepool.driver.config import integer, nonempty

#: Key of ``tenant-resource-limits`` -> name of the quota. Any other key is its own quota name.
QUOTA_NAMES: Final = {
    "max-servers": "instances",
    "max-cores": "cores",
    "max-ram": "ram",
    "max-volumes": "volumes",
    "max-volume-gb": "volume-gb",
}

#: Read elsewhere, and checked there.
_ELSEWHERE: Final = ("zookeeper-servers", "zookeeper-tls", "zookeeper-timeout", "diskimages", "providers")

TOP: Final = Checker(
    {
        "webapp": {"port": integer(0, 65535), "listen_address": nonempty()},
        "elements-dir": nonempty(),
        "images-dir": nonempty(),
        "build-log-dir": nonempty(),
        "build-log-retention": integer(),
        "labels": [{v.Required("name"): nonempty(), "min-ready": integer(), "max-ready-age": integer()}],
        "max-hold-age": integer(),
        "tenant-resource-limits": [{v.Required("tenant-name"): nonempty(), v.Extra: integer()}],
        **dict.fromkeys(_ELSEWHERE, object),
    }
)


def read_sections(document: Document, config: Config, problems: Problems) -> None:
    """Check the whole top level, and put what is fine into ``config``."""
    TOP.check(document.data, document, [], problems)
    data: dict[str, Any] = document.data
    _simple_values(data, config)
    for index, section in entries(data, "labels", "name"):
        name = section["name"]
        if name in config.labels:
            duplicate(document, ["labels", index, "name"], "label", name, problems)
            continue
        min_ready, max_age = _int(section.get("min-ready"), 0), _int(section.get("max-ready-age"), 0)
        config.labels[name] = Label(name, min_ready, max_age)
    _tenants(document, config, problems)


def _simple_values(data: dict[str, Any], config: Config) -> None:
    webapp = data.get("webapp")
    if isinstance(webapp, dict):
        config.webapp_port = _int(webapp.get("port"), config.webapp_port)
        config.webapp_listen_address = webapp.get("listen_address", config.webapp_listen_address)
    config.elements_dir = data.get("elements-dir")
    config.images_dir = data.get("images-dir")
    config.build_log_dir = data.get("build-log-dir", config.build_log_dir)
    config.build_log_retention = _int(data.get("build-log-retention"), config.build_log_retention)
    config.max_hold_age = _int(data.get("max-hold-age"), config.max_hold_age)


def _tenants(document: Document, config: Config, problems: Problems) -> None:
    for index, section in entries(document.data, "tenant-resource-limits", "tenant-name"):
        name = section["tenant-name"]
        path = ["tenant-resource-limits", index]
        if name in config.tenant_resource_limits:
            duplicate(document, [*path, "tenant-name"], "tenant", name, problems)
            continue
        limits: dict[str, float] = {}
        for key, value in section.items():
            if key == "tenant-name":
                continue
            if key not in QUOTA_NAMES and (hint := did_you_mean(key, QUOTA_NAMES)):
                message = f"taken for the name of a resource of a driver{hint}"
                problems.add(document.path, document.line_of([*path, key]), [*path, key], message, Severity.WARNING)
            if isinstance(value, int):
                limits[QUOTA_NAMES.get(key, key)] = value
        config.tenant_resource_limits[name] = limits


# -- for the other readers --


def entries(data: Any, key: str, name_key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of the entries of a list that are mappings with a name; others are reported already."""
    section = data.get(key) if isinstance(data, dict) else None
    if isinstance(section, list):
        for index, entry in enumerate(section):
            if isinstance(entry, dict) and isinstance(entry.get(name_key), str):
                yield index, entry


def duplicate(document: Document, path: list[Hashable], kind: str, name: str, problems: Problems) -> None:
    """Report a name that is there for the second time."""
    message = f"there is a {kind} named {name!r} already; names must be unique"
    problems.add(document.path, document.line_of(path), path, message)


def _int(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default
