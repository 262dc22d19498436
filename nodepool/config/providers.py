# SPDX-License-Identifier: Apache-2.0
"""``providers``: common checks, then each section goes to its driver (reference/configuration 5).

A section that cannot be used gives an `UnavailableProviderConfig`: its errors are those of the provider, not of the
file, and the other providers work. So does a driver that Nodepool knows, but that is not here; that is no error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, TypeVar

import voluptuous as v

from nodepool.config.marks import Document
from nodepool.config.objects import Config
from nodepool.config.problems import Problems, Severity, did_you_mean, listing, show
from nodepool.config.schema import Checker
from nodepool.config.sections import duplicate, entries, repeated
from nodepool.driver.config import DEFAULT_DRIVER, ConfigPool, ProviderConfig
from nodepool.driver.framework import class_checks
from nodepool.driver.framework.unavailable import UnavailableProviderConfig
from nodepool.driver.interface import Driver
from nodepool.driver.registry import KNOWN, Drivers, DriverUnavailable, LibraryMissing
from nodepool.exceptions import ConfigError

log = logging.getLogger("nodepool.config")

T = TypeVar("T")

COMMON: Final = Checker(
    v.Schema(
        {
            **ProviderConfig.getCommonSchemaDict(),
            "pools": [v.Schema(ConfigPool.getCommonSchemaDict(), extra=v.ALLOW_EXTRA)],
        },
        extra=v.ALLOW_EXTRA,
    )
)


class DriverError(Exception):
    """A driver raised an error of its own while it read a section."""


class CheckedSections:
    """Provider sections that conform to their schemas, kept from one load to the next.

    A reload checks only those that changed: with 2,000 labels in each of 20 providers the schemas were a third of it.
    """

    def __init__(self) -> None:
        #: Name of the provider -> class of its driver (a new one when the driver was imported anew), section.
        self._sections: dict[str, tuple[type[Driver], dict[str, Any]]] = {}

    def knows(self, section: dict[str, Any], driver: Driver | None = None) -> bool:
        """Was just this section checked before, by this driver, and without an objection?

        :param driver: None = any.
        """
        name = section.get("name")
        known = self._sections.get(name) if isinstance(name, str) else None
        return known is not None and (driver is None or known[0] is type(driver)) and known[1] == section

    def remember(self, section: dict[str, Any], driver: Driver) -> None:
        self._sections[section["name"]] = (type(driver), section)


class ProviderReader:
    """Checks the provider sections of one document and puts the loaded ones into a `Config`.

    :param checked: sections that need no check against schemas; those of this document are added.
    """

    def __init__(
        self, document: Document, config: Config, problems: Problems, checked: CheckedSections | None = None
    ) -> None:
        self._document = document
        self._config = config
        self._problems = problems
        self._checked = checked or CheckedSections()
        #: How many problems there were before the section that is being read.
        self._found = 0

    def read(self) -> None:
        """Check all sections; those without an error are loaded."""
        sections = self._document.data.get("providers")
        if sections is None and "providers" not in self._document.data:
            return
        if not isinstance(sections, list):
            self._problem(["providers"], f"expected a list of mappings, got {show(sections)}")
            return
        for index, section in enumerate(sections):
            if not isinstance(section, dict):
                text = f"expected a mapping, got {show(section)}"
                self._problem(["providers", index], text, Severity.PROVIDER_ERROR)
        last = {section["name"]: index for index, section in entries(self._document.data, "providers", "name")}
        for index, section in enumerate(sections):
            if not isinstance(section, dict):
                continue
            name = section.get("name")
            if isinstance(name, str) and last[name] != index:
                repeated(self._document, ["providers", index, "name"], "provider", name, last[name], self._problems)
                continue
            self._section(["providers", index], section)

    def _section(self, path: list[Hashable], section: dict[str, Any]) -> None:
        """Check and load one section."""
        self._found = len(self._problems.found)
        name = section.get("name")
        if not self._checked.knows(section):
            COMMON.check(section, self._document, path, self._problems)
        self._check_names(path, section)
        provider = self._make(path, section)
        errors = self._problems.confine(self._found)
        if provider is not None and not errors and not self._is_broken("labels") and not self._is_broken("diskimages"):
            try:
                _call("load()", provider.load, self._config)
            except DriverError as error:
                self._problem(path, f"driver {provider.driver.name!r} cannot use this section: {error}")
                errors = self._problems.confine(self._found)
                self._forget_pools(section)
        if errors:
            more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
            provider = UnavailableProviderConfig(section, f"{errors[0]}{more}")
        if provider is not None and isinstance(name, str):
            self._config.providers[name] = provider

    def _forget_pools(self, section: dict[str, Any]) -> None:
        """Labels have no pools of a provider whose `load` failed on the way."""
        for label in self._config.labels.values():
            label.pools = [pool for pool in label.pools if getattr(pool.provider, "provider", None) is not section]

    def _make(self, path: list[Hashable], section: dict[str, Any]) -> ProviderConfig | None:
        """Check a section with its driver's schema; returns its object, not loaded, or None if there is none."""
        driver_name = section.get("driver", DEFAULT_DRIVER)
        where = [*path, "driver"] if "driver" in section else path
        if not isinstance(driver_name, str) or not isinstance(section.get("name"), str):
            return None
        here = Drivers.names()
        if driver_name not in here:
            if driver_name in KNOWN:
                reason = f"the driver {driver_name!r} is not part of this installation"
                self._problem(where, f"{reason}; details of the section are not checked", Severity.WARNING)
                return UnavailableProviderConfig(section, reason)
            known = KNOWN.union(here)
            hint = did_you_mean(driver_name, known)
            self._problem(where, f"there is no driver {driver_name!r}{hint} (known: {listing(known)})")
            return None
        try:
            return self._ask_driver(Drivers.get(driver_name), path, section)
        except LibraryMissing as error:
            # Nothing is wrong with the file.
            self._problem(where, f"{error}; details of the section are not checked", Severity.WARNING)
            return UnavailableProviderConfig(section, str(error))
        except (DriverUnavailable, DriverError) as error:
            self._problem(where, str(error))
            return None

    def _ask_driver(self, driver: Driver, path: list[Hashable], section: dict[str, Any]) -> ProviderConfig | None:
        """Raises DriverError."""
        origin = f"driver {driver.name!r}"
        made = _call(f"{origin}: getProviderConfig()", driver.getProviderConfig, section)
        provider: ProviderConfig = _call(
            origin, class_checks.check_instance, made, ProviderConfig, f"{origin}: getProviderConfig()"
        )
        if self._checked.knows(section, driver):
            return provider
        checker = _call(f"{origin}: getSchema()", lambda: Checker(provider.getSchema()))
        _call(f"{origin}: getSchema()", checker.check, section, self._document, path, self._problems)
        if len(self._problems.found) == self._found:
            self._checked.remember(section, driver)
        return provider

    # -- names that must be defined elsewhere in the file --

    def _check_names(self, path: list[Hashable], section: dict[str, Any]) -> None:
        """Unique pool names; labels and images must be defined at the top level."""
        self._check_images(path, section)
        seen: set[str] = set()
        for index, pool in entries(section, "pools", "name"):
            if pool["name"] in seen:
                duplicate(self._document, [*path, "pools", index, "name"], "pool", pool["name"], self._problems)
            seen.add(pool["name"])
        # Pools without a usable name are looked at as well.
        pools = section.get("pools")
        for index, pool in enumerate(pools if isinstance(pools, list) else []):
            if isinstance(pool, dict):
                self._check_labels([*path, "pools", index], pool)

    def _check_images(self, path: list[Hashable], section: dict[str, Any]) -> None:
        if self._is_broken("diskimages"):
            return
        for index, image in entries(section, "diskimages", "name"):
            if image["name"] not in self._config.diskimages:
                self._undefined([*path, "diskimages", index, "name"], "diskimage", image["name"])

    def _check_labels(self, path: list[Hashable], pool: dict[str, Any]) -> None:
        offered: set[str] = set()
        for index, label in entries(pool, "labels", "name"):
            if label["name"] in offered:
                duplicate(self._document, [*path, "labels", index, "name"], "label", label["name"], self._problems)
            offered.add(label["name"])
        if not self._is_broken("labels"):
            labels = self._config.labels
            for where, name in _label_names(pool):
                if name not in labels:
                    self._undefined([*path, *where], "label", name)
        if not self._is_broken("diskimages"):
            for index, label in entries(pool, "labels", "diskimage"):
                if label["diskimage"] not in self._config.diskimages:
                    self._undefined([*path, "labels", index, "diskimage"], "diskimage", label["diskimage"])

    def _is_broken(self, key: str) -> bool:
        """The top-level list is reported already; then every name in a pool would be one more problem."""
        return not isinstance(self._document.data.get(key, []), list)

    def _undefined(self, path: list[Hashable], kind: str, name: str) -> None:
        known = self._config.labels if kind == "label" else self._config.diskimages
        if kind == "label" and any(part in known for part in name.replace(",", " ").split()):
            hint = "; several labels must be written as a list"
        else:
            hint = did_you_mean(name, known) or f"; add it to the top-level {kind}s"
        self._problem(path, f"the {kind} {name!r} is not defined{hint}")

    def _problem(self, path: list[Hashable], message: str, severity: Severity = Severity.ERROR) -> None:
        self._problems.add(self._document.path, self._document.line_of(path), path, message, severity)


def _label_names(pool: dict[str, Any]) -> Iterator[tuple[list[Hashable], str]]:
    """All labels that a pool offers, each with its place in the pool: ``labels``, and ``nodes[].labels`` of static."""
    for index, label in enumerate(_list(pool.get("labels"))):
        if isinstance(label, str):
            yield ["labels", index], label
        elif isinstance(label, dict) and isinstance(label.get("name"), str):
            yield ["labels", index, "name"], label["name"]
    for index, node in enumerate(_list(pool.get("nodes"))):
        labels = node.get("labels") if isinstance(node, dict) else None
        if isinstance(labels, str):
            yield ["nodes", index, "labels"], labels
        for position, label in enumerate(_list(labels)):
            if isinstance(label, str):
                yield ["nodes", index, "labels", position], label


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _call(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call code of a driver. Raises DriverError whatever it raises: a driver must not take the program down."""
    try:
        return function(*arguments)
    except (ConfigError, class_checks.ContractError) as error:
        raise DriverError(str(error)) from error
    except Exception as error:
        # Code of a driver: whatever it is, the other providers are configured.
        log.debug("%s failed", what, exc_info=True)
        text = f"{error} is not defined" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise DriverError(f"{what}: {' '.join(text.split())}") from error
