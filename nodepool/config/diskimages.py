# SPDX-License-Identifier: Apache-2.0
"""``diskimages``: what to build, with inheritance (reference/configuration 4)."""

from __future__ import annotations

from typing import Any, Final

import voluptuous as v

from nodepool.config.marks import Document
from nodepool.config.objects import Config, DiskImage
from nodepool.config.problems import Problems, Severity, did_you_mean, show
from nodepool.config.schema import Checker
from nodepool.config.sections import entries, report_repeated
from nodepool.config.tolerance import Tolerance, check_or_change
from nodepool.driver.framework.key_schema import fields_of, section_schema
from nodepool.model.config_keys import FILLED_TEXT, REQUIRED, TEXT, MappingOf, key, keys_of
from nodepool.model.config_value import ConfigValue

IMAGES: Final = Checker([section_schema(DiskImage)])


class SecureDiskImage(ConfigValue):
    """The keys of an image in the secure file that count (reference/configuration 1); others in it are ignored."""

    name: str = key(FILLED_TEXT, REQUIRED, "Of the image.")
    env_vars: dict[str, str] = key(MappingOf(TEXT), {}, "Added to the environment of its build.")


SECURE: Final = Checker(v.Schema([v.Schema(fields_of(keys_of(SecureDiskImage)), extra=v.ALLOW_EXTRA)]))


def read_diskimages(document: Document, config: Config, problems: Problems) -> None:
    """Check ``diskimages`` and put the images into ``config``, each with what it inherits."""
    if "diskimages" not in document.data:
        return
    images = document.data["diskimages"]
    path = ["diskimages"]
    tolerance = Tolerance(document, problems)
    fine = check_or_change(IMAGES, images, document, path, problems, lambda: tolerance.entries(DiskImage, images, path))
    again = report_repeated(document, "diskimages", "name", "diskimage", problems, Severity.TOLERATED)
    sections: dict[str, tuple[int, dict[str, Any]]] = {}
    for index, section in entries(document.data, "diskimages", "name"):
        name = section["name"]
        if index in again:
            continue
        sections[name] = (index, section)
        _warn_release(document, index, section, problems)
    for name in sections:
        lineage = _lineage(name, sections, document, problems)
        image = DiskImage(name)
        if fine:
            for ancestor in lineage:
                _apply(image, sections[ancestor][1])
        # An abstract parent does not make its children abstract.
        image.abstract = sections[name][1].get("abstract") is True
        config.diskimages[name] = image


def _lineage(
    name: str, sections: dict[str, tuple[int, dict[str, Any]]], document: Document, problems: Problems
) -> list[str]:
    """An image and its ancestors, the farthest first. Each broken link is reported where it stands."""
    chain = [name]
    while True:
        index, section = sections[chain[-1]]
        parent = section.get("parent")
        if not isinstance(parent, str) or not parent:
            return chain[::-1]
        path = ["diskimages", index, "parent"]
        line = document.line_of(path)
        if parent not in sections:
            message = f"there is no diskimage {parent!r}{did_you_mean(parent, sections)}"
            problems.add(document.path, line, path, message)
            return chain[::-1]
        if parent in chain:
            circle = " -> ".join([chain[-1], *chain[chain.index(parent) :]])
            if parent == name:
                problems.add(document.path, line, path, f"an image cannot be its own ancestor: {circle}")
            return chain[::-1]
        chain.append(parent)


def _apply(image: DiskImage, section: dict[str, Any]) -> None:
    """Overlay what one section says. Only values that count replace: a child cannot undo ``pause: true``."""
    for item in keys_of(DiskImage):
        value, before = section.get(item.name), getattr(image, item.attribute)
        if item.name == "elements":
            image.elements = [*before, *(value or [])]
        elif isinstance(item.default, dict):
            setattr(image, item.attribute, {**before, **(value or {})})
        elif value or (item.name == "delete-after-upload" and value is not None):
            setattr(image, item.attribute, value if item.convert is None else item.convert(value))


def _warn_release(document: Document, index: int, section: dict[str, Any], problems: Problems) -> None:
    release = section.get("release")
    if isinstance(release, float):
        path = ["diskimages", index, "release"]
        message = f"is read as the number {show(release)}; put it in quotes to keep it as it is written"
        problems.add(document.path, document.line_of(path), path, message, Severity.WARNING)


def merge_secure(secure: Document, config: Config, problems: Problems) -> None:
    """Put ``env-vars`` of the secure file into the images (G-15)."""
    if "diskimages" not in secure.data:
        return
    # The file is secret: its values are not shown. SECURE knows no unknown keys.
    images, path = secure.data["diskimages"], ["diskimages"]
    tolerance = Tolerance(secure, problems)
    if not check_or_change(
        SECURE, images, secure, path, problems, lambda: tolerance.entries(SecureDiskImage, images, path)
    ):
        return
    for index, section in entries(secure.data, "diskimages", "name"):
        image = config.diskimages.get(section["name"])
        if image is None:
            where = ["diskimages", index, "name"]
            message = f"there is no diskimage {section['name']!r}{did_you_mean(section['name'], config.diskimages)}"
            problems.add(secure.path, secure.line_of(where), where, message)
            continue
        image.env_vars = {**image.env_vars, **section.get("env-vars", {})}
