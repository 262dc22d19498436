# SPDX-License-Identifier: Apache-2.0
"""The sections of a configuration other than ZooKeeper, images and providers (reference/configuration 2, 3, 6)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

from nodepool.config.marks import Document
from nodepool.config.objects import Config, Label, TenantLimits, TopLevel
from nodepool.config.problems import Problems, Severity, did_you_mean
from nodepool.config.schema import Checker
from nodepool.driver.framework.key_schema import fields_of
from nodepool.model.config_keys import keys_of

#: Key of ``tenant-resource-limits`` -> name of the quota. Any other key is its own quota name.
QUOTA_NAMES: Final = {
    item.name: item.attribute.replace("_", "-") for item in keys_of(TenantLimits) if item.name != "tenant-name"
}

#: Read elsewhere, and checked there.
_ELSEWHERE: Final = ("zookeeper-servers", "zookeeper-tls", "zookeeper-timeout", "diskimages", "providers")

TOP: Final = Checker(
    {
        **fields_of(item for item in keys_of(TopLevel) if item.name not in _ELSEWHERE),
        **dict.fromkeys(_ELSEWHERE, object),
    }
)


def read_sections(document: Document, config: Config, problems: Problems) -> None:
    """Check the whole top level, and put what is fine into ``config``."""
    fine = TOP.check(document.data, document, [], problems)
    data: dict[str, Any] = document.data
    if fine:
        config.read_keys(data, TopLevel)
    for index, section in entries(data, "labels", "name"):
        name = section["name"]
        if name in config.labels:
            duplicate(document, ["labels", index, "name"], "label", name, problems)
            continue
        config.labels[name] = Label(name)
        if fine:
            config.labels[name].read_keys(section)
    _tenants(document, config, problems)


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


def repeated(document: Document, path: list[Hashable], kind: str, name: str, last: int, problems: Problems) -> None:
    """Report an entry whose name stands in the list again: Nodepool 11 takes the last one, and so do we.

    :param last: position of that one in the list.
    """
    line = document.line_of([*path[:-2], last])
    message = f"there is another {kind} named {name!r} in line {line}, which counts instead of this one; remove one"
    problems.add(document.path, document.line_of(path), path, message, Severity.WARNING)


def duplicate(document: Document, path: list[Hashable], kind: str, name: str, problems: Problems) -> None:
    """Report a name that is there for the second time."""
    message = f"there is a {kind} named {name!r} already; names must be unique"
    problems.add(document.path, document.line_of(path), path, message)
