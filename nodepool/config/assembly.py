# SPDX-License-Identifier: Apache-2.0
"""Documents to a `Config`, section by section, in the order of reference/configuration 1.

First the whole, then the sections of providers, which go to their drivers, and the check of such a section against the
schemas. Last ``nodepool config-validate``, which finds everything that is wrong with a file, and in which column.
"""

from __future__ import annotations

import copy
import dataclasses
import linecache
import logging
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar

import voluptuous as v

from nodepool.config.loader import read_documents
from nodepool.config.objects import Config
from nodepool.config.problems import Document, Problem, Problems, Severity, did_you_mean, listing, show
from nodepool.config.schema import Checker, Tolerance
from nodepool.config.sections import entries, merge_secure, read_diskimages, read_sections, repeated, report_repeated
from nodepool.config.zookeeper import add_tls_problems, read_zookeeper
from nodepool.driver.config import DEFAULT_DRIVER, ConfigPool, ProviderConfig
from nodepool.driver.framework.sections import DeclaredProviderConfig, UnavailableProviderConfig
from nodepool.driver.interface import Driver
from nodepool.driver.registry import KNOWN, ContractError, Drivers, DriverUnavailable, LibraryMissing, check_instance
from nodepool.exceptions import ConfigError
from nodepool.guard import ERRORS
from nodepool.model.config_keys import ConfigValue, Sections, allows, key, nearest
from nodepool.model.image import CANDIDATE_LABEL, CHECK_BY_LABEL
from nodepool.model.status import AccessRule

log = logging.getLogger("nodepool.config")

T = TypeVar("T")


def assemble(
    main: Document, secure: Document | None, *, secure_given: bool, checked: CheckedSections | None = None
) -> Config:
    """Make the configuration. Imports the drivers that it names.

    :param secure_given: was a secure file named? An empty one is no document.
    :param checked: what earlier loads have checked.

    What is wrong is noted in the documents; if there is an error, the result is incomplete and must not be used.
    """
    Drivers.reset()
    config = assemble_images(main, secure, secure_given=secure_given)
    ProviderReader(main, config, {} if checked is None else checked).read()
    return config


def assemble_images(main: Document, secure: Document | None, *, secure_given: bool) -> Config:
    """Make the configuration without its providers; see `assemble`."""
    config = Config()
    config.path, config.digest = main.path, main.digest
    read_sections(main, config)
    read_zookeeper(config, main, secure, secure_given=secure_given)
    read_diskimages(main, config)
    if secure is not None:
        merge_secure(secure, config)
    return config


# ``providers``: common checks, then each section goes to its driver (reference/configuration 5).
#
# A section that cannot be used gives an `UnavailableProviderConfig`: its errors are those of the provider, not of the
# file, and the other providers work. So does a driver that Nodepool knows, but that is not installed; that is no error.


#: Provider sections that conform to their schemas, kept from one load to the next: name of the provider -> class of its
#: object (a new one when the driver was imported anew), section. A reload checks only those that changed: with 2,000
#: labels in each of 20 providers the schemas were a quarter of it.
CheckedSections = dict[str, tuple[type[ProviderConfig], dict[str, Any]]]

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

    pools: Any = key(Sections(ConfigPool), None, "The pools of the provider.")


class ProviderReader:
    """Checks the provider sections of one document and puts the loaded ones into a `Config`.

    :param checked: sections that need no check against schemas; those of this document are added.
    """

    def __init__(self, document: Document, config: Config, checked: CheckedSections) -> None:
        self._document = document
        self._note = document.note
        self._problems = document.problems
        self._config = config
        self._checked = checked

    def read(self) -> None:
        """Check all sections; those without an error are loaded."""
        sections = self._document.data.get("providers")
        if sections is None and "providers" not in self._document.data:
            return
        if not isinstance(sections, list):
            self._note(["providers"], f"expected a list of mappings, got {show(sections)}")
            return
        for index, section in enumerate(sections):
            if not isinstance(section, dict):
                text = f"expected a mapping, got {show(section)}"
                self._note(["providers", index], text, Severity.PROVIDER_ERROR)
        again = report_repeated(self._document, "providers", "name", "provider", Severity.TOLERATED)
        for index, section in enumerate(sections):
            if isinstance(section, dict) and index not in again:
                self._section(["providers", index], section)
        self._add_candidate_labels()
        self._check_min_ready(sections)
        self._check_tenants()

    def _section(self, path: list[Hashable], section: dict[str, Any]) -> None:
        """Check and load one section."""
        start = len(self._problems.found)
        self._check_images(path, section)
        for index, pool in enumerate(_list(section.get("pools"))):
            # Pools without a usable name are looked at as well.
            if isinstance(pool, dict):
                self._check_labels([*path, "pools", index], pool)
        provider = self._make(path, section)
        if provider is None or self._checked.get(section["name"]) != (type(provider), section):
            section, provider = self._conform(path, section, provider)
        name = section.get("name")
        if provider is not None and len(self._problems.found) == start:
            self._checked[section["name"]] = (type(provider), section)
        errors = self._problems.confine(start)
        if provider is not None and not errors and not self._is_broken("labels") and not self._is_broken("diskimages"):
            pools = {label: len(found.pools) for label, found in self._config.labels.items()}
            try:
                call_driver("load()", provider.load, self._config)
            except DriverError as error:
                self._note(path, f"driver {provider.driver.name!r} cannot use this section: {error}")
                errors = self._problems.confine(start)
                # Pools need not know their provider.
                for label, count in pools.items():
                    del self._config.labels[label].pools[count:]
        if errors:
            more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
            provider = UnavailableProviderConfig(section, f"{errors[0]}{more}")
        if provider is not None and isinstance(name, str):
            self._config.providers[name] = provider

    def _add_candidate_labels(self) -> None:
        """For each label whose image a job of the site checks, another one like it (CA-10)."""
        labels = self._config.labels
        for pool in (pool for provider in self._config.providers.values() for pool in provider.pools.values()):
            own = pool.labels if isinstance(pool.labels, dict) else {}
            for label in list(own.values()):
                image = self._config.diskimages.get(getattr(getattr(label, "diskimage", None), "name", ""))
                name = f"{label.name}{CANDIDATE_LABEL}"
                if image is not None and image.promote_check == CHECK_BY_LABEL and name not in own:
                    own[name] = copy.copy(label)
                    own[name].name = name
                    if name not in labels:
                        labels[name] = copy.copy(labels[label.name])
                        labels[name].name, labels[name].min_ready, labels[name].pools = name, 0, []
                    labels[name].pools.append(pool)

    def _make(self, path: list[Hashable], section: dict[str, Any]) -> ProviderConfig | None:
        """The object of a section, not checked and not loaded; None: there is none, which is reported."""
        driver_name = section.get("driver", DEFAULT_DRIVER)
        where = [*path, "driver"] if "driver" in section else path
        if not isinstance(driver_name, str) or not isinstance(section.get("name"), str):
            return None
        here = Drivers.names()
        if driver_name not in here:
            if driver_name in KNOWN:
                reason = f"the driver {driver_name!r} is not part of this installation"
                self._note(where, f"{reason}; details of the section are not checked", Severity.WARNING)
                return UnavailableProviderConfig(section, reason)
            known = KNOWN.union(here)
            meant = nearest(driver_name, known)
            hint = f", did you mean {meant!r}?" if meant else ""
            self._note(where, f"there is no driver {driver_name!r}{hint} (known: {listing(known)})")
            # So that one wrong word does not hide what else is wrong with the section.
            return None if meant not in here else self._ask(where, meant, section)
        return self._ask(where, driver_name, section)

    def _ask(self, where: list[Hashable], driver_name: str, section: dict[str, Any]) -> ProviderConfig | None:
        """The object that a driver makes of a section; None: it makes none, which is reported."""
        try:
            return _ask_driver(Drivers.get(driver_name), section)
        except LibraryMissing as error:
            # Nothing is wrong with the file.
            self._note(where, f"{error}; details of the section are not checked", Severity.WARNING)
            return UnavailableProviderConfig(section, str(error))
        except (DriverUnavailable, DriverError) as error:
            self._note(where, str(error))
            return None

    # -- a section and its schemas --

    def _conform(
        self, path: list[Hashable], section: dict[str, Any], provider: ProviderConfig | None
    ) -> tuple[dict[str, Any], ProviderConfig | None]:
        """Check a section. One that does not conform to the schemas is changed to what daemons of Nodepool 11 read.

        :param path: of the section in the document.
        :param provider: its object; None = it has none.
        :return: what takes the place of both; a changed section is a copy, which is in the document then.
        """
        start = len(self._problems.found)
        try:
            own = _checker(provider)
            if self._conforms(path, section, provider, own) and not self._repeats(path, section):
                return section, provider
            del self._problems.found[start:]
            # Other providers may have parts of it, by aliases.
            section = self._document.data["providers"][path[1]] = self._document.own_copy(section)
            self._change(path, section, provider)
            self._conforms(path, section, provider, own)
        except DriverError as error:
            del self._problems.found[start:]
            self._note(path, str(error))
            return section, provider
        made = self._make(path, section)
        if provider is None and made is not None:
            # It can be checked against the schema of its driver only now.
            return self._conform(path, section, made)
        return section, made

    def _conforms(
        self, path: list[Hashable], section: dict[str, Any], provider: ProviderConfig | None, own: Checker | None
    ) -> bool:
        """:param own: of the driver. Raises DriverError."""
        fine = COMMON.check(section, self._document, path)
        if own is None or provider is None:
            return fine
        start = len(self._problems.found)
        fine = call_driver(_origin(provider), own.check, section, self._document, path) and fine
        if not isinstance(provider, DeclaredProviderConfig):
            # Daemons of Nodepool 11 never ask a driver for its schema; its load() will tell.
            self._problems.change(Severity.ERROR, Severity.TOLERATED, start)
        return fine

    def _change(self, path: list[Hashable], section: dict[str, Any], provider: ProviderConfig | None) -> None:
        tolerance = Tolerance(self._document)
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
        lists = [(path, section, "pools", "pool", Severity.TOLERATED)]
        for index, pool in enumerate(_list(section.get("pools"))):
            lists.append(([*path, "pools", index], pool, "labels", "label", Severity.WARNING))
        return [
            (where, text, severity)
            for place, data, key, kind, severity in lists
            for _, where, text in repeated(self._document, place, data, key, "name", kind)
        ]

    # -- names that must be defined elsewhere in the file --

    def _check_min_ready(self, sections: list[Any]) -> None:
        """Another launcher may have the label: that is what ``check`` looks at."""
        pools = [pool for section in sections if isinstance(section, dict) for pool in _list(section.get("pools"))]
        offered = {name for pool in pools if isinstance(pool, dict) for _, name in _label_names(pool)}
        for index, section in entries(self._document.data, "labels", "name"):
            label = self._config.labels.get(section["name"])
            if label is not None and label.min_ready > 0 and label.name not in offered:
                text = "no pool of this file has the label; add it to a pool, or remove min-ready"
                self._note(["labels", index, "min-ready"], text, Severity.WARNING)

    def _check_tenants(self) -> None:
        """Another launcher may serve a tenant that no pool of this file serves."""
        pools = [pool for provider in self._config.providers.values() for pool in provider.pools.values()]
        access = [(pool.labels, pool.access(self._config.labels)) for pool in pools if isinstance(pool, ConfigPool)]
        for name in ("tenant-resource-limits", "tenant-shares"):
            for index, section in entries(self._document.data, name, "tenant-name"):
                if access and not any(_serves(section["tenant-name"], *each) for each in access):
                    text = "allowed-tenants of no pool and label of this file allow the tenant; correct one of them"
                    self._note([name, index, "tenant-name"], text, Severity.WARNING)

    def _check_images(self, path: list[Hashable], section: dict[str, Any]) -> None:
        if self._is_broken("diskimages"):
            return
        for index, image in entries(section, "diskimages", "name"):
            if image["name"] not in self._config.diskimages:
                self._undefined([*path, "diskimages", index, "name"], "diskimage", image["name"])

    def _check_labels(self, path: list[Hashable], pool: dict[str, Any]) -> None:
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
        self._note(path, f"the {kind} {name!r} is not defined{hint}")


def _ask_driver(driver: Driver, section: dict[str, Any]) -> ProviderConfig:
    """Raises DriverError."""
    origin = f"driver {driver.name!r}: getProviderConfig()"
    made = call_driver(origin, driver.getProviderConfig, section)
    provider: ProviderConfig = call_driver(origin, check_instance, made, ProviderConfig, origin)
    return provider


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


def _serves(tenant: str, labels: Collection[str], rules: Sequence[AccessRule]) -> bool:
    """Does a pool with these labels and rules serve a tenant in any way?"""

    def may_have(label: str) -> bool:
        return all(allows(rule.tenants, tenant) for rule in rules if rule.labels is None or label in rule.labels)

    return any(map(may_have, labels))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _origin(provider: ProviderConfig) -> str:
    return f"driver {provider.driver.name!r}: getSchema()"


def _checker(provider: ProviderConfig | None) -> Checker | None:
    """Of a section's own schema. Raises DriverError."""
    if provider is None or isinstance(provider, UnavailableProviderConfig):
        return None
    made: Checker = call_driver(_origin(provider), lambda: Checker(provider.getSchema()))
    return made


class DriverError(Exception):
    """A driver raised an error of its own while it read a section."""


def call_driver(what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call code of a driver. Raises DriverError whatever it raises: a driver must not take the program down."""
    try:
        return function(*arguments)
    except (ConfigError, ContractError) as error:
        raise DriverError(str(error)) from error
    except ERRORS as error:
        # Code of a driver: whatever it is, the other providers are configured.
        log.debug("%s failed", what, exc_info=True)
        text = f"{error} is not defined" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise DriverError(f"{what}: {' '.join(text.split())}") from error


# ``nodepool config-validate``: everything that is wrong with a file (reference/configuration 11).

_PLACE: Final = re.compile(r"(?::(\d+))?(?::(\d+))?: ")


def validate(path: str, secure_path: str | None = None) -> list[Problem]:
    """Check a file. Contacts nothing, but imports the drivers that the file names.

    :param secure_path: its secure file, if there is one.
    :return: every problem, in the order of the lines; the ``str`` of each is a whole message. Those of the severity
        WARNING are no errors: something is legal but odd, or could not be checked.
    :raises ConfigError: a file cannot be read, is not YAML, or no mapping, so that nothing more is known.
    """
    main, _ = _read(path, secure_path)
    return main.problems.all()


def validate_here(path: str, secure_path: str | None = None) -> list[Problem]:
    """As `validate`, and also the files that the configuration names, such as those of TLS and ``clouds.yaml``.

    That one is not on this machine is a warning: a configuration may be checked elsewhere. So is what the secure file
    or this machine would have to add, if no secure file is given. A file that cannot be read is a problem like others,
    and each has its column.
    """
    try:
        main, config = _read(path, secure_path)
    except ConfigError as error:
        files = [name for name in (path, secure_path) if name is not None]
        return [_problem_of(line, files) for line in str(error).splitlines()]
    if secure_path is None:
        main.problems.change(Severity.INCOMPLETE, Severity.WARNING)
    _check_machine(main, config)
    found = main.problems.all()
    linecache.checkcache()
    return [dataclasses.replace(problem, column=_column(problem)) for problem in found]


def _read(path: str, secure_path: str | None) -> tuple[Document, Config]:
    main, secure = read_documents(path, secure_path, Problems())
    return main, assemble(main, secure, secure_given=secure_path is not None)


def _check_machine(main: Document, config: Config) -> None:
    add_tls_problems(config, main.problems, Severity.WARNING)
    for index, section in entries(main.data, "providers", "name"):
        provider = config.providers.get(section["name"])
        if provider is None:
            continue
        try:
            found = call_driver("localProblems()", lambda provider: list(provider.localProblems()), provider)
        except DriverError as error:
            found = [("driver", str(error))]
        for name, text in found:
            main.note(["providers", index, name], text, Severity.WARNING)


def _problem_of(line: str, files: list[str]) -> Problem:
    """The problem that a line of a ConfigError tells."""
    for file in files:
        place = _PLACE.match(line, len(file)) if line.startswith(file) else None
        if place is not None:
            number, column = (None if part is None else int(part) for part in place.groups())
            return Problem(file, number, "", line[place.end() :], column=column)
    return Problem(files[0], None, "", line)


#: Characters of a line in which a column is looked for: each problem of the line takes a look at all of it.
_LONGEST_LINE: Final = 1000


def _column(problem: Problem) -> int | None:
    """Where the key or the list entry begins in its line, from 1; None = it is not known. Daemons do without."""
    if problem.column is not None or problem.line is None:
        return problem.column
    text = linecache.getline(problem.file, problem.line)
    if len(text) > _LONGEST_LINE:
        return None
    for part in reversed(problem.path):
        pattern = r"^\s*(?:-\s+)+()" if isinstance(part, int) else rf"()(?<![\w.-]){re.escape(str(part))}\W*?:"
        found = list(re.finditer(pattern, text))
        if found:
            # In "[{name: a}, {name: b}]" it may be any of them.
            return found[0].start(1) + 1 if len(found) == 1 else None
    return None
