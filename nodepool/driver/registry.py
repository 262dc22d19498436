# SPDX-License-Identifier: Apache-2.0
"""Finds drivers by the names of their directories; imports one when a configuration names it (driver-api.md 0)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from nodepool.driver import contract
from nodepool.driver.interface import Driver

BUILTIN = Path(__file__).parent


class Drivers:
    """All drivers of the process. ``_lock`` guards the tables and is held over an import, so that it happens once."""

    log = logging.getLogger("nodepool.driver.Drivers")

    _lock: ClassVar[threading.RLock] = threading.RLock()
    _paths: ClassVar[list[str] | None] = None
    _found: ClassVar[dict[str, Path]] = {}
    _drivers: ClassVar[dict[str, Driver]] = {}

    @classmethod
    def load(cls, paths: list[str] | None = None) -> None:
        """Look for drivers: extra directories first, then the built-in one; the first of a name wins.

        Only lists directories. The same list again does nothing.
        """
        wanted = list(paths or [])
        with cls._lock:
            if cls._paths == wanted:
                return
            found: dict[str, Path] = {}
            for directory in [*(Path(path) for path in wanted), BUILTIN]:
                for name, path in sorted(_packages(directory)):
                    if name in found:
                        cls.log.warning("Driver %s in %s is hidden by %s", name, path, found[name])
                    else:
                        found[name] = path
            cls._drivers = {
                name: made for name, made in cls._drivers.items() if found.get(name) == cls._found.get(name)
            }
            cls._found = found
            cls._paths = wanted

    @classmethod
    def names(cls) -> list[str]:
        """Names of the drivers that are there."""
        if cls._paths is None:
            cls.load()
        return sorted(cls._found)

    @classmethod
    def get(cls, name: str) -> Driver:
        """The driver of a name; imported now if need be.

        :raises RuntimeError: there is none, or it cannot be used; the text says why.
        """
        with cls._lock:
            if cls._paths is None:
                cls.load()
            driver = cls._drivers.get(name)
            if driver is None:
                path = cls._found.get(name)
                if path is None:
                    raise RuntimeError(f"there is no driver {name!r}; drivers here: {', '.join(cls.names())}")
                driver = cls._drivers[name] = _make(name, path)
            return driver

    @classmethod
    def reset(cls) -> None:
        """Tell every driver in use that a configuration is about to be loaded."""
        with cls._lock:
            drivers = list(cls._drivers.values())
        for driver in drivers:
            driver.reset()


def _packages(directory: Path) -> list[tuple[str, Path]]:
    if not directory.is_dir():
        Drivers.log.error("Driver directory %s does not exist", directory)
        return []
    found = []
    for path in directory.iterdir():
        if not (path / "__init__.py").is_file() or path.name.startswith(("_", ".")):
            continue
        # A package of shared code among the built-in drivers, not a driver.
        if path.parent == BUILTIN and path.name == "statemachine":
            continue
        found.append((path.name, path))
    return found


def _make(name: str, path: Path) -> Driver:
    try:
        module = _import(name, path)
    except ImportError as error:
        raise RuntimeError(
            f"driver {name!r} cannot be imported: {error}; its libraries may be missing: pip install 'nodepool[{name}]'"
        ) from error
    classes = [
        member
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Driver) and member.__module__ == module.__name__
    ]
    if len(classes) != 1:
        names = ", ".join(sorted(cls.__name__ for cls in classes)) or "none"
        raise RuntimeError(f"driver {name!r}: {path} must define exactly one subclass of Driver, found: {names}")
    contract.check(classes[0], f"driver {name!r}")
    driver = classes[0]()
    if not driver.name:
        driver.name = name
    return driver


def _import(name: str, path: Path) -> ModuleType:
    if path.parent == BUILTIN:
        return importlib.import_module(f"nodepool.driver.{name}")
    module_name = f"nodepool_extra_drivers.{name}"
    spec = importlib.util.spec_from_file_location(
        module_name, path / "__init__.py", submodule_search_locations=[str(path)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no Python package in {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module
