# SPDX-License-Identifier: Apache-2.0
"""One provider section in a configuration that has what it names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nodepool.config.assembly import validate
from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.interface import Driver
from tests.support.tables import driver_table


def section_with(
    section: dict[str, Any],
    label: dict[str, Any] | None = None,
    pool: dict[str, Any] | None = None,
    **provider: Any,
) -> dict[str, Any]:
    """A section of a provider with one pool and one label, changed.

    :param label: more keys of the label; ``pool`` and ``provider`` likewise, the latter with ``_`` for ``-``.
    """
    made = copy.deepcopy(section)
    made |= {name.replace("_", "-"): value for name, value in provider.items()}
    made["pools"][0] |= pool or {}
    made["pools"][0]["labels"][0] |= label or {}
    return made


def load_section(driver: Driver, data: dict[str, Any]) -> Any:
    """The `ProviderConfig` of a section, checked and loaded in a configuration that has its labels and images."""
    whole = Config()
    for image in data.get("diskimages", []):
        whole.diskimages[image["name"]] = DiskImage(image["name"])
        whole.diskimages[image["name"]].username = "builder"
    for name in _label_names(data):
        whole.labels[name] = Label(name)
    made = driver.getProviderConfig(data)
    made.getSchema()(data)
    made.load(whole)
    return made


def problems_of_section(directory: Path, data: dict[str, Any], *images: str) -> list[str]:
    """What ``config-validate`` says of a section: ``key: text``; each has file and line.

    :param images: names of the top-level ``diskimages``.
    """
    whole = {
        "zookeeper-servers": [{"host": "zk"}],
        "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
        "labels": [{"name": name} for name in _label_names(data)],
        "diskimages": [{"name": name} for name in images],
        "providers": [data],
    }
    file = directory / "nodepool.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    found = validate(str(file))
    assert all(str(problem).startswith(f"{file}:") for problem in found)
    return [str(problem).split(": ", 1)[1] for problem in found]


def _label_names(data: dict[str, Any]) -> list[str]:
    return [label["name"] for pool in data["pools"] for label in pool.get("labels", [])]


class DriverSections:
    """Sections of a driver: that of the table ``section`` of its unit tests, and changes of it."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver = driver
        self._section: dict[str, Any] = driver_table(name, "section")

    def section(
        self, label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any
    ) -> dict[str, Any]:
        """As `section_with`; None takes a key of the provider away."""
        made = section_with(self._section, label, pool, **provider)
        return {name: value for name, value in made.items() if value is not None}

    def changed(self, changes: dict[str, Any], make: Callable[..., dict[str, Any]] | None = None) -> dict[str, Any]:
        """A section with changes of the ``provider``, ``pool``, ``label`` or ``image``.

        :param make: makes it, as `section` does.
        """
        given = dict(changes.get("provider", {}))
        if "image" in changes:
            (first,) = self._section["cloud-images"]
            given["cloud_images"] = [{"name": first["name"], "username": first["username"], **changes["image"]}]
        return (make or self.section)(changes.get("label"), changes.get("pool"), **given)

    def load(self, data: dict[str, Any]) -> Any:
        """As `load_section`."""
        return load_section(self.driver, data)


def label_of(config: Any) -> Any:
    """The label ``small`` of the pool ``main``."""
    return config.pools["main"].labels["small"]


def has(found: Any, **expected: Any) -> None:
    """The attributes of an object; a tuple counts as a list."""
    values = {name: getattr(found, name) for name in expected}
    assert {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()} == expected


def parts(config: Any) -> dict[str, Any]:
    """What a configuration has, by name."""
    labels = {name: label for pool in config.pools.values() for name, label in pool.labels.items()}
    return {"provider": config, **config.pools, **labels, **config.cloud_images, **config.diskimages}
