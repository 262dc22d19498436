# SPDX-License-Identifier: Apache-2.0
"""The sections of a configuration other than ZooKeeper and providers (reference/configuration 2, 3, 4, 6).

First these sections, then ``diskimages``, then what a configuration wants of images.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import voluptuous as v

from nodepool.config.objects import Config, DiskImage, Label, TenantLimits, TopLevel, check_tracing
from nodepool.config.problems import Document, Severity, did_you_mean, show
from nodepool.config.schema import Checker, Tolerance, check_or_change
from nodepool.config.webapp import Authenticator, OperatorRule, check_web_addresses, is_network
from nodepool.driver.config import fields_of, mappings, section_schema
from nodepool.model.config_keys import FILLED_TEXT, REQUIRED, TEXT, ConfigValue, MappingOf, key, keys_of
from nodepool.model.image import problem_of_address
from nodepool.model.status import TenantShare
from nodepool.plan.images import WantedImage, WantedImages, WantedUpload

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


def read_sections(document: Document, config: Config) -> None:
    """Check the whole top level, and put what is fine into ``config``."""
    data: dict[str, Any] = document.data
    tolerance = Tolerance(document)
    tolerance.empty_keys(_MAY_BE_EMPTY)
    fine = check_or_change(TOP, data, document, [], lambda: tolerance.section(TopLevel, data, []))
    if fine:
        config.read_keys(data, TopLevel)
        _web_logins(document, config)
        check_tracing(config, document)
    again = report_repeated(document, "labels", "name", "label")
    for index, section in entries(data, "labels", "name"):
        name = section["name"]
        if index in again:
            continue
        config.labels[name] = Label(name)
        if fine:
            config.labels[name].read_keys(section)
    _tenants(document, config)


def _web_logins(document: Document, config: Config) -> None:
    """Whose tokens are accepted. What would leave the pages more open than it was meant is an error."""
    auth = (document.data.get("webapp") or {}).get("auth") or {}
    config.webapp_authenticators = [Authenticator(section) for section in auth.get("authenticators") or ()]
    config.webapp_operators = [OperatorRule(section) for section in auth.get("operators") or ()]
    if config.webapp_require_login and not config.webapp_authenticators:
        document.note(["webapp", "auth", "require-login"], "it needs webapp.auth.authenticators")
    for index, text in enumerate(config.webapp_trusted_proxies):
        if not is_network(text):
            message = f"expected an address or a network such as 192.0.2.0/24, got {text!r}"
            document.note(["webapp", "trusted-proxies", index], message)
    if config.webapp_tls_key and not config.webapp_tls_cert:
        document.note(["webapp", "tls", "key"], "it needs webapp.tls.cert")
    check_web_addresses(config, document)


def _tenants(document: Document, config: Config) -> None:
    again = report_repeated(document, "tenant-resource-limits", "tenant-name", "tenant")
    for index, section in entries(document.data, "tenant-resource-limits", "tenant-name"):
        name = section["tenant-name"]
        if index in again:
            continue
        path = ["tenant-resource-limits", index]
        config.tenant_resource_limits[name] = _amounts(document, path, section)
    again = report_repeated(document, "tenant-shares", "tenant-name", "tenant")
    for index, section in entries(document.data, "tenant-shares", "tenant-name"):
        weight, guaranteed = section.get("weight", 1.0), section.get("guaranteed")
        if index not in again and isinstance(weight, int | float) and weight > 0:
            path = ["tenant-shares", index, "guaranteed"]
            amounts = _amounts(document, path, guaranteed if isinstance(guaranteed, dict) else {})
            config.tenant_shares[section["tenant-name"]] = TenantShare(float(weight), amounts)
    if config.fair_projects and not config.tenant_shares:
        document.note(["fair-projects"], "it has no effect without tenant-shares", Severity.WARNING)


def _amounts(document: Document, path: Sequence[Hashable], section: Mapping[str, Any]) -> dict[str, float]:
    """Name of a quota -> the number that a section has for it."""
    amounts: dict[str, float] = {}
    for resource, value in section.items():
        if resource == "tenant-name":
            continue
        hint = did_you_mean(resource, QUOTA_NAMES)
        if resource not in QUOTA_NAMES and (hint or str(resource).startswith("max-")):
            message = f"taken for the name of a resource of a driver{hint}"
            document.note([*path, resource], message, Severity.WARNING)
        if isinstance(value, int):
            amounts[QUOTA_NAMES.get(resource, resource)] = value
    return amounts


# What the other readers of sections use.


def entries(data: Any, key: str, name_key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of the entries of a list that are mappings with a name; others are reported already."""
    return ((index, entry) for index, entry in mappings(data, key) if isinstance(entry.get(name_key), str))


def repeated(
    document: Document, place: Sequence[Hashable], data: Any, key: str, name_key: str, kind: str
) -> Iterator[tuple[int, list[Hashable], str]]:
    """Entries of a list whose names stand in it again: position, place of the name, and what to say.

    Nodepool 11 takes the last one, and so do we.

    :param place: of what has the list, in the document. ``data``: what stands there.
    """
    last = {entry[name_key]: index for index, entry in entries(data, key, name_key)}
    for index, entry in entries(data, key, name_key):
        name = entry[name_key]
        if last[name] != index:
            where = f"in line {document.line_of([*place, key, last[name]])}"
            text = f"there is another {kind} named {name!r} {where}, which counts instead of this one; remove one"
            yield index, [*place, key, index, name_key], text


def report_repeated(
    document: Document, key: str, name_key: str, kind: str, severity: Severity = Severity.WARNING
) -> set[int]:
    """Report the entries of a list at the top level whose names stand in it again; returns their positions."""
    found = list(repeated(document, [], document.data, key, name_key, kind))
    for _, where, text in found:
        document.note(where, text, severity)
    return {index for index, _, _ in found}


# ``diskimages``: what to build, with inheritance (reference/configuration 4).

IMAGES: Final = Checker([section_schema(DiskImage)])


class SecureDiskImage(ConfigValue):
    """The keys of an image in the secure file that count (reference/configuration 1); others in it are ignored."""

    name: str = key(FILLED_TEXT, REQUIRED, "Of the image.")
    env_vars: dict[str, str] = key(MappingOf(TEXT), {}, "Added to the environment of its build.")


SECURE: Final = Checker(v.Schema([v.Schema(fields_of(keys_of(SecureDiskImage)), extra=v.ALLOW_EXTRA)]))


def read_diskimages(document: Document, config: Config) -> None:
    """Check ``diskimages`` and put the images into ``config``, each with what it inherits."""
    if "diskimages" not in document.data:
        return
    images = document.data["diskimages"]
    path = ["diskimages"]
    tolerance = Tolerance(document)
    fine = check_or_change(IMAGES, images, document, path, lambda: tolerance.entries(DiskImage, images, path))
    again = report_repeated(document, "diskimages", "name", "diskimage", Severity.TOLERATED)
    sections: dict[str, tuple[int, dict[str, Any]]] = {}
    for index, section in entries(document.data, "diskimages", "name"):
        name = section["name"]
        if index in again:
            continue
        sections[name] = (index, section)
        _warn_release(document, index, section)
        _check_source(document, index, section)
    for name in sections:
        lineage = _lineage(name, sections, document)
        image = DiskImage(name)
        if fine:
            for ancestor in lineage:
                _apply(image, sections[ancestor][1])
        # An abstract parent does not make its children abstract.
        image.abstract = sections[name][1].get("abstract") is True
        config.diskimages[name] = image


def _lineage(name: str, sections: dict[str, tuple[int, dict[str, Any]]], document: Document) -> list[str]:
    """An image and its ancestors, the farthest first. Each broken link is reported where it stands."""
    chain = [name]
    while True:
        index, section = sections[chain[-1]]
        parent = section.get("parent")
        if not isinstance(parent, str) or not parent:
            return chain[::-1]
        path = ["diskimages", index, "parent"]
        if parent not in sections:
            document.note(path, f"there is no diskimage {parent!r}{did_you_mean(parent, sections)}")
            return chain[::-1]
        if parent in chain:
            circle = " -> ".join([chain[-1], *chain[chain.index(parent) :]])
            if parent == name:
                document.note(path, f"an image cannot be its own ancestor: {circle}")
            return chain[::-1]
        chain.append(parent)


def _apply(image: DiskImage, section: dict[str, Any]) -> None:
    """Overlay what one section says. Only values that count replace: a child cannot undo ``pause: true``."""
    for item in keys_of(DiskImage):
        value, before = item.given(section), getattr(image, item.attribute)
        if item.name == "elements":
            image.elements = [*before, *(value or [])]
        elif isinstance(item.default, dict):
            setattr(image, item.attribute, {**before, **(value or {})})
        elif value or (item.name == "delete-after-upload" and value is not None):
            setattr(image, item.attribute, value if item.convert is None else item.convert(value))


def _warn_release(document: Document, index: int, section: dict[str, Any]) -> None:
    release = section.get("release")
    if isinstance(release, float):
        message = f"is read as the number {show(release)}; put it in quotes to keep it as it is written"
        document.note(["diskimages", index, "release"], message, Severity.WARNING)


def _check_source(document: Document, index: int, section: dict[str, Any]) -> None:
    source = section.get("source")
    for name in ("url", "checksum-url"):
        text = source.get(name) if isinstance(source, dict) else None
        if isinstance(text, str) and (problem := problem_of_address(text)):
            document.note(["diskimages", index, "source", name], problem)


def merge_secure(secure: Document, config: Config) -> None:
    """Put ``env-vars`` of the secure file into the images (G-15)."""
    if "diskimages" not in secure.data:
        return
    # The file is secret: its values are not shown. SECURE knows no unknown keys.
    images, path = secure.data["diskimages"], ["diskimages"]
    tolerance = Tolerance(secure)
    if not check_or_change(SECURE, images, secure, path, lambda: tolerance.entries(SecureDiskImage, images, path)):
        return
    for index, section in entries(secure.data, "diskimages", "name"):
        image = config.diskimages.get(section["name"])
        if image is None:
            message = f"there is no diskimage {section['name']!r}{did_you_mean(section['name'], config.diskimages)}"
            secure.note(["diskimages", index, "name"], message)
            continue
        image.env_vars = {**image.env_vars, **section.get("env-vars", {})}


# What a configuration wants of images, as values for the decisions in `nodepool.plan`.


def wanted_images(config: Config) -> WantedImages:
    """The images of ``diskimages``, without those that are only parents, and who uses them.

    A provider that cannot be used, or has no images, is not among the providers: its uploads are not touched (R-12).
    """
    providers: dict[str, dict[str, WantedUpload]] = {}
    for name, provider in config.providers.items():
        image_format = getattr(provider, "image_type", None)
        if provider.manage_images and isinstance(image_format, str):
            used: Mapping[str, Any] = getattr(provider, "diskimages", None) or {}
            resumes = getattr(provider, "resumes_uploads", False) is True
            providers[name] = {
                image: WantedUpload(image_format, bool(getattr(settings, "pause", False)), resumes)
                for image, settings in used.items()
            }
    images = {name: _wanted(image) for name, image in config.diskimages.items() if not image.abstract}
    return WantedImages(images, providers)


def _wanted(image: DiskImage) -> WantedImage:
    formats = frozenset(image.image_types)
    environment = tuple(sorted((name, str(value)) for name, value in image.env_vars.items()))
    return WantedImage(
        image.name,
        formats=formats,
        rebuild_age_seconds=image.source_refresh if image.source else image.rebuild_age,
        paused=image.pause,
        keep_formats=frozenset(image.keep_formats),
        delete_after_upload=image.delete_after_upload,
        settings=(
            *(formats, tuple(image.elements), environment, image.release, image.dib_cmd, image.build_timeout),
            image.source,
        ),
        source=image.source,
    )
