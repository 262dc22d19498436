# SPDX-License-Identifier: Apache-2.0
"""Finds drivers by the names of their directories, and those of installed distributions; imports one when a
configuration names it (reference/driver 0).
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, TypeVar

from nodepool.driver.interface import Driver
from nodepool.guard import ERRORS, Guard, OnError
from nodepool.version import how_to_install

BUILTIN: Final = Path(__file__).parent
#: In which all drivers are imported.
PACKAGE: Final = "nodepool.driver"
#: Environment variable with directories of further drivers, separated by ``:``.
PATH_VARIABLE: Final = "NODEPOOL_DRIVER_PATH"
#: Entry points of installed distributions: the name of a driver, and the package with its class.
GROUP: Final = "nodepool.drivers"
#: Packages of shared code among the built-in drivers.
NOT_DRIVERS: Final = frozenset({"framework", "statemachine"})
#: Names that no driver may have, because `nodepool.driver` has something else of that name.
TAKEN: Final = NOT_DRIVERS.union(path.stem for path in BUILTIN.glob("*.py"))
#: Drivers of the released Nodepool that may not be here yet: sections that name them are kept, not refused.
KNOWN: Final = frozenset(
    {"aws", "azure", "gce", "ibmvpc", "kubernetes", "metastatic", "openshift", "openshiftpods", "openstack", "static"}
)


class DriverUnavailable(RuntimeError):
    """A driver is not there or cannot be used. The text says why, in one line."""


class LibraryMissing(DriverUnavailable):
    """A driver cannot be used here because a package is not installed. The text says which one brings it."""


class Drivers:
    """All drivers of the process: one instance of each.

    ``_lock`` guards the tables. It is held over an import, so that each driver is made once.
    """

    log = logging.getLogger("nodepool.driver.Drivers")

    _lock: ClassVar[threading.RLock] = threading.RLock()
    _paths: ClassVar[list[str] | None] = None
    _found: ClassVar[dict[str, Path]] = {}
    #: Name of a driver of an installed distribution -> package that is imported for it.
    _imported_as: ClassVar[dict[str, str]] = {}
    _drivers: ClassVar[dict[str, Driver]] = {}

    @classmethod
    def load(cls, paths: Sequence[str] = ()) -> None:
        """Look for drivers: in extra directories first, then in the built-in one, then in installed distributions.

        The first of a name wins. Only lists directories and distributions; nothing is imported. The same paths again do
        nothing. Who does not call it, as the commands, gets the directories of `PATH_VARIABLE`.
        """
        wanted = list(paths)
        with cls._lock:
            if cls._paths == wanted:
                return
            found: dict[str, Path] = {}
            packages: dict[str, str] = {}
            places = [
                (name, path, "")
                for directory in [*(Path(path) for path in wanted), BUILTIN]
                for name, path in _packages(directory)
            ]
            for name, path, package in [*places, *_installed()]:
                if name in found:
                    cls.log.warning("Driver %s in %s is hidden by the one in %s", name, path, found[name])
                    continue
                found[name] = path
                if package:
                    packages[name] = package
            old = cls._found
            cls._drivers = {name: made for name, made in cls._drivers.items() if found.get(name) == old.get(name)}
            cls._found, cls._imported_as = found, packages
            cls._paths = wanted
            for name, path in found.items():
                # Now: one driver may import modules of another.
                _make_way(name, path)
            if wanted and not any(isinstance(finder, _ExtraDrivers) for finder in sys.meta_path):
                sys.meta_path.insert(0, _ExtraDrivers())

    @classmethod
    def place_of(cls, name: str) -> Path | None:
        """The directory of a driver; None = there is none of the name. Does not block."""
        return cls._found.get(name)

    @classmethod
    def package_of(cls, name: str) -> str:
        """What is imported for a driver. Does not block."""
        return cls._imported_as.get(name, f"{PACKAGE}.{name}")

    @classmethod
    def is_extra(cls, name: str) -> bool:
        """Is a driver not among the built-in ones? Does not block."""
        where = cls._found.get(name)
        return where is not None and where.parent != BUILTIN

    @classmethod
    def names(cls) -> list[str]:
        """Names of the drivers that are there, sorted; which of them work shows in `get`."""
        with cls._lock:
            cls._load_on_demand()
            return sorted(cls._found)

    @classmethod
    def get(cls, name: str) -> Driver:
        """The driver of a name; imported now if need be, which may take a while.

        :raises DriverUnavailable: (a RuntimeError) there is none, or it cannot be used.
        """
        with cls._lock:
            cls._load_on_demand()
            driver = cls._drivers.get(name)
            if driver is None:
                path = cls._found.get(name)
                if path is None:
                    raise DriverUnavailable(f"there is no driver {name!r} here, only: {', '.join(cls.names())}")
                driver = cls._drivers[name] = _make(name, path)
            return driver

    @classmethod
    def _load_on_demand(cls) -> None:
        if cls._paths is None:
            # Absolute: a daemon changes its directory before it imports a driver.
            cls.load([os.path.abspath(path) for path in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if path])

    @classmethod
    def reset(cls) -> None:
        """Tell every driver in use that a configuration is about to be loaded; one that fails is logged."""
        with cls._lock:
            drivers = dict(cls._drivers)
        for name, driver in drivers.items():
            # Of one driver, and the others shall be reported, too.
            with Guard(cls.log, "Driver %s: error in reset()", name):
                driver.reset()


def _packages(directory: Path) -> list[tuple[str, Path]]:
    """Name and path of each package in a directory, sorted."""
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        Drivers.log.error("Driver directory %s cannot be read: %s", directory, error.strerror)
        return []
    found = []
    for path in entries:
        if not (path / "__init__.py").is_file() or not path.name.isidentifier() or path.name.startswith("_"):
            continue
        if path.name not in TAKEN:
            found.append((path.name, path))
        elif directory != BUILTIN:
            Drivers.log.error("Driver %s is left out: no driver can have the name %s", path, path.name)
    return found


def installed_drivers() -> list[EntryPoint]:
    """The drivers of installed distributions. Reads what these say of themselves; imports nothing."""
    # One file that cannot be read, of any distribution, which need not have a driver.
    with Guard(Drivers.log, "Drivers of installed distributions are left out", traceback=False):
        return sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return []


def _installed() -> Iterator[tuple[str, Path, str]]:
    """Name, directory and package of each."""
    for point in installed_drivers():
        if point.name in TAKEN:
            Drivers.log.error("Driver %s is left out: no driver can have the name %s", point.value, point.name)
            continue
        spec = None
        # Python imports the packages that it is in.
        guard = Guard(Drivers.log, "Driver %s is left out: error in %r", point.name, point.value, traceback=False)
        with guard, suppress(ModuleNotFoundError):
            spec = importlib.util.find_spec(point.module)
        if guard.error is not None:
            continue
        if spec is None or spec.origin is None:
            Drivers.log.error("Driver %s is left out: there is no package %s", point.name, point.module)
        else:
            yield point.name, Path(spec.origin).parent, point.module


def _make(name: str, path: Path) -> Driver:
    """Import a package and make its driver. Raises DriverUnavailable."""
    try:
        module = _import(name, path)
    except ImportError as error:
        if path.parent == BUILTIN:
            raise _library_missing(name, path, str(error)) from error
        raise DriverUnavailable(f"driver {name!r} cannot be imported: {error}") from error
    except ERRORS as error:
        # Code of a driver and of its libraries.
        raise DriverUnavailable(
            f"driver {name!r} in {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    # A driver that is not ours may be mended without a restart: it is read anew then.
    with OnError(lambda _: _take_away(name) if path.parent != BUILTIN else None):
        return _driver_of(module, name, path)


def _driver_of(module: ModuleType, name: str, path: Path) -> Driver:
    """The driver of an imported package. Raises DriverUnavailable."""
    classes = [
        member
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Driver) and member.__module__ == module.__name__
    ]
    if len(classes) != 1:
        names = ", ".join(sorted(cls.__name__ for cls in classes)) or "none"
        raise DriverUnavailable(f"driver {name!r}: {path} must define exactly one subclass of Driver, found: {names}")
    if missing := missing_members(classes[0]):
        raise DriverUnavailable(f"driver {name!r}: class {classes[0].__name__} must implement {', '.join(missing)}")
    try:
        driver: Driver = classes[0]()
    except ERRORS as error:
        # Code of a driver that may not be ours. The others work all the same.
        raise DriverUnavailable(f"driver {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not driver.name:
        driver.name = name
    missing = [library for library in driver.libraries if not _is_installed(library)]
    if missing:
        raise _library_missing(name, path, f"No module named {', '.join(map(repr, missing))}")
    return driver


def _is_installed(module: str) -> bool:
    """Can a module be imported? Does not import it, only the packages that it is in."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        # Not even its package is there; or someone put something without a specification in its place.
        return sys.modules.get(module) is not None


def _library_missing(driver: str, path: Path, reason: str) -> LibraryMissing:
    # An extra of its name brings it. That of a driver whose libraries the core brings has no content.
    hint = f"; {how_to_install(driver)}" if path.parent == BUILTIN else ""
    return LibraryMissing(f"driver {driver!r} needs what is not installed ({reason}){hint}")


def _import(name: str, path: Path) -> ModuleType:
    """Import a driver: one of a directory as ``nodepool.driver.<name>``, wherever it is, as its own modules expect."""
    package = Drivers.package_of(name)
    if package != f"{PACKAGE}.{name}":
        return importlib.import_module(package)
    _make_way(name, path)
    # What was imported of it so far may be what is mended next.
    with OnError(lambda _: _take_away(name)):
        return importlib.import_module(package)


class _ExtraDrivers(importlib.abc.MetaPathFinder):
    """Lets Python find drivers that are not among the built-in ones, also when one imports modules of another."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        where = Drivers.place_of(name) if package == PACKAGE else None
        if where is None or where.parent == BUILTIN or Drivers.package_of(name) != fullname:
            return None
        return importlib.util.spec_from_file_location(
            fullname, where / "__init__.py", submodule_search_locations=[str(where)]
        )


def _take_away(name: str) -> None:
    """Forget the modules of a driver, so that another one of its name does not meet them."""
    own = f"{PACKAGE}.{name}"
    for key in [key for key in sys.modules if key == own or key.startswith(f"{own}.")]:
        del sys.modules[key]
    vars(sys.modules[PACKAGE]).pop(name, None)


def _make_way(name: str, path: Path) -> None:
    """Let a driver have its name in place of another one that had it before."""
    module = sys.modules.get(f"{PACKAGE}.{name}")
    if module is not None and str(path) not in getattr(module, "__path__", ()):
        _take_away(name)


# Do the classes of a driver have all that their base classes require?

T = TypeVar("T")


class ContractError(TypeError):
    """What a driver returned is not of the right kind."""


def missing_members(cls: type[Any]) -> list[str]:
    """Names of abstract members that a class must still implement, sorted."""
    return sorted(getattr(cls, "__abstractmethods__", ()))


def check_instance(value: T, base: type[Any], origin: str) -> T:
    """Refuse what a driver returned if it is not an object of the class that the contract asks for.

    :return: ``value``.
    :raises ContractError: it is not.
    """
    if not isinstance(value, base):
        raise ContractError(f"{origin} must return a {base.__name__}, not {type(value).__name__}")
    return value
