# SPDX-License-Identifier: Apache-2.0
"""Checks the section of a provider against the schemas, of every provider and of its driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import voluptuous as v

from nodepool.config.marks import Document
from nodepool.config.problems import Problems, Severity
from nodepool.config.schema import Checker
from nodepool.config.sections import repeated, repeated_text
from nodepool.config.tolerance import Tolerance
from nodepool.driver.config import ConfigPool, ProviderConfig
from nodepool.driver.framework import class_checks
from nodepool.driver.framework.sections import DeclaredProviderConfig
from nodepool.driver.framework.unavailable import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.guard import ERRORS
from nodepool.model.config_keys import Sections, key
from nodepool.model.config_value import ConfigValue

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


class AnyProvider(ConfigValue):
    """The keys of a provider of any driver, and of its pools."""

    keys_also_of = (ProviderConfig,)

    pools: Any = key(Sections(ConfigPool), None, "Slices of the provider.")


class DriverError(Exception):
    """A driver raised an error of its own while it read a section."""


def call_driver(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call code of a driver. Raises DriverError whatever it raises: a driver must not take the program down."""
    try:
        return function(*arguments)
    except (ConfigError, class_checks.ContractError) as error:
        raise DriverError(str(error)) from error
    except ERRORS as error:
        # Code of a driver: whatever it is, the other providers are configured.
        log.debug("%s failed", what, exc_info=True)
        text = f"{error} is not defined" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise DriverError(f"{what}: {' '.join(text.split())}") from error


class ProviderCheck:
    """Of the sections of one document.

    :param problems: is informed what is wrong.
    """

    def __init__(self, document: Document, problems: Problems) -> None:
        self._document = document
        self._problems = problems

    def conform(self, path: list[Hashable], section: dict[str, Any], provider: ProviderConfig | None) -> dict[str, Any]:
        """Check a section. One that does not conform to the schemas is changed to what daemons of Nodepool 11 read.

        :param path: of the section in the document.
        :param provider: its object; None = it has none.
        :return: the section, or the changed copy that is in the document then.
        :raises DriverError: of the driver.
        """
        own = None
        if provider is not None and not isinstance(provider, UnavailableProviderConfig):
            own = call_driver(f"driver {provider.driver.name!r}: getSchema()", lambda: Checker(provider.getSchema()))
        trial = Problems()
        fine = self._check(path, section, provider, own, trial)
        if fine and not self._repeats(path, section):
            self._problems.found.extend(trial.found)
            return section
        # Other providers may have parts of it, by aliases.
        section = self._document.data["providers"][path[1]] = self._document.own_copy(section)
        self._change(path, section, provider)
        self._check(path, section, provider, own, self._problems)
        return section

    def _check(
        self,
        path: list[Hashable],
        section: dict[str, Any],
        provider: ProviderConfig | None,
        own: Checker | None,
        problems: Problems,
    ) -> bool:
        """:param own: of the driver. Raises DriverError."""
        fine = COMMON.check(section, self._document, path, problems)
        if own is None or provider is None:
            return fine
        found = Problems()
        origin = f"driver {provider.driver.name!r}: getSchema()"
        fine = call_driver(origin, own.check, section, self._document, path, found) and fine
        if not isinstance(provider, DeclaredProviderConfig):
            # Daemons of Nodepool 11 never ask a driver for its schema; its load() will tell.
            found.tolerate()
        problems.found.extend(found.found)
        return fine

    def _change(self, path: list[Hashable], section: dict[str, Any], provider: ProviderConfig | None) -> None:
        tolerance = Tolerance(self._document, self._problems)
        declared = isinstance(provider, DeclaredProviderConfig)
        tolerance.section(type(provider) if declared else AnyProvider, section, path)
        for where, text, severity in reversed(self._repeats(path, section)):
            tolerance.drop(where, text, severity)
        if isinstance(provider, DeclaredProviderConfig):
            try:
                surplus = call_driver("without_effect()", lambda: list(provider.without_effect(section)))
            except DriverError:
                # Some value has no meaning; the schema says which one.
                surplus = []
            for inside, text in reversed(surplus):
                tolerance.drop([*path, *inside], text, Severity.TOLERATED)

    def _repeats(self, path: list[Hashable], section: dict[str, Any]) -> list[tuple[list[Hashable], str, Severity]]:
        """Pools, and labels of a pool, whose names stand there again: place, what to say, and how bad it is."""
        found: list[tuple[list[Hashable], str, Severity]] = []
        lists: list[tuple[list[Hashable], str, Any, str]] = [(path, "pools", section, "pool")]
        pools = section.get("pools")
        for index, pool in enumerate(pools if isinstance(pools, list) else []):
            lists.append(([*path, "pools", index], "labels", pool, "label"))
        for place, name_of_list, data, kind in lists:
            for index, name, last in repeated(data, name_of_list, "name"):
                where = [*place, name_of_list]
                severity = Severity.TOLERATED if kind == "pool" else Severity.WARNING
                text = repeated_text(self._document, where, kind, name, last)
                found.append(([*where, index, "name"], text, severity))
        return found
