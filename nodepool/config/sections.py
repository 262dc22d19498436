# SPDX-License-Identifier: Apache-2.0
"""The sections of a configuration other than ZooKeeper, images and providers (reference/configuration 2, 3, 6)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

from nodepool.config.marks import Document
from nodepool.config.objects import Config, Label, TenantLimits, TopLevel
from nodepool.config.problems import Problems, Severity, did_you_mean
from nodepool.config.schema import Checker
from nodepool.config.tolerance import Tolerance, check_or_change
from nodepool.config.traces import check_tracing
from nodepool.config.web_addresses import check_web_addresses
from nodepool.config.webapp import Authenticator, OperatorRule, is_network
from nodepool.driver.framework.key_schema import fields_of
from nodepool.model.config_keys import keys_of

#: Key of ``tenant-resource-limits`` -> name of the quota. Any other key is its own quota name.
QUOTA_NAMES: Final = {
    item.name: item.attribute.replace("_", "-") for item in keys_of(TenantLimits) if item.name != "tenant-name"
}

#: Keys that may be there without a value; how to reach ZooKeeper is needed.
_MAY_BE_EMPTY: Final = (*{item.path[0] for item in keys_of(TopLevel)}, "zookeeper-timeout")
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
    data: dict[str, Any] = document.data
    tolerance = Tolerance(document, problems)
    tolerance.empty_keys(_MAY_BE_EMPTY)
    fine = check_or_change(TOP, data, document, [], problems, lambda: tolerance.section(TopLevel, data, []))
    if fine:
        config.read_keys(data, TopLevel)
        _web_logins(document, config, problems)
        check_tracing(config, document, problems)
    again = report_repeated(document, "labels", "name", "label", problems)
    for index, section in entries(data, "labels", "name"):
        name = section["name"]
        if index in again:
            continue
        config.labels[name] = Label(name)
        if fine:
            config.labels[name].read_keys(section)
    _tenants(document, config, problems)


def _web_logins(document: Document, config: Config, problems: Problems) -> None:
    """Whose tokens are accepted. What would leave the pages more open than it was meant is an error."""
    auth = (document.data.get("webapp") or {}).get("auth") or {}
    config.webapp_authenticators = [Authenticator(section) for section in auth.get("authenticators") or ()]
    config.webapp_operators = [OperatorRule(section) for section in auth.get("operators") or ()]
    if config.webapp_require_login and not config.webapp_authenticators:
        path = ["webapp", "auth", "require-login"]
        problems.add(document.path, document.line_of(path), path, "it needs webapp.auth.authenticators")
    for index, text in enumerate(config.webapp_trusted_proxies):
        if not is_network(text):
            place: list[Hashable] = ["webapp", "trusted-proxies", index]
            message = f"expected an address or a network such as 192.0.2.0/24, got {text!r}"
            problems.add(document.path, document.line_of(place), place, message)
    if config.webapp_tls_key and not config.webapp_tls_cert:
        path = ["webapp", "tls", "key"]
        problems.add(document.path, document.line_of(path), path, "it needs webapp.tls.cert")
    check_web_addresses(config, document, problems)


def _tenants(document: Document, config: Config, problems: Problems) -> None:
    again = report_repeated(document, "tenant-resource-limits", "tenant-name", "tenant", problems)
    for index, section in entries(document.data, "tenant-resource-limits", "tenant-name"):
        name = section["tenant-name"]
        path = ["tenant-resource-limits", index]
        if index in again:
            continue
        limits: dict[str, float] = {}
        for resource, value in section.items():
            if resource == "tenant-name":
                continue
            if resource not in QUOTA_NAMES and (hint := did_you_mean(resource, QUOTA_NAMES)):
                message = f"taken for the name of a resource of a driver{hint}"
                where = [*path, resource]
                problems.add(document.path, document.line_of(where), where, message, Severity.WARNING)
            if isinstance(value, int):
                limits[QUOTA_NAMES.get(resource, resource)] = value
        config.tenant_resource_limits[name] = limits


# -- for the other readers --


def entries(data: Any, key: str, name_key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of the entries of a list that are mappings with a name; others are reported already."""
    section = data.get(key) if isinstance(data, dict) else None
    if isinstance(section, list):
        for index, entry in enumerate(section):
            if isinstance(entry, dict) and isinstance(entry.get(name_key), str):
                yield index, entry


def repeated(data: Any, key: str, name_key: str) -> Iterator[tuple[int, str, int]]:
    """Entries of a list whose names stand in it again: position, name, and position of the last one.

    Nodepool 11 takes the last one, and so do we.
    """
    last = {entry[name_key]: index for index, entry in entries(data, key, name_key)}
    for index, entry in entries(data, key, name_key):
        if last[entry[name_key]] != index:
            yield index, entry[name_key], last[entry[name_key]]


def repeated_text(document: Document, path: Sequence[Hashable], kind: str, name: str, last: int) -> str:
    """What to say of such an entry.

    :param path: of the list.
    :param last: position of the last one.
    """
    line = document.line_of([*path, last])
    return f"there is another {kind} named {name!r} in line {line}, which counts instead of this one; remove one"


def report_repeated(
    document: Document, key: str, name_key: str, kind: str, problems: Problems, severity: Severity = Severity.WARNING
) -> set[int]:
    """Report the entries of a list at the top level whose names stand in it again; returns their positions."""
    found: set[int] = set()
    for index, name, last in repeated(document.data, key, name_key):
        path = [key, index, name_key]
        text = repeated_text(document, [key], kind, name, last)
        problems.add(document.path, document.line_of(path), path, text, severity)
        found.add(index)
    return found
