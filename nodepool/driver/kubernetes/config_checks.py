# SPDX-License-Identifier: Apache-2.0
"""What keys of a section of Kubernetes say together.

Names that no object can have are refused here, with file and line, because the API would refuse each launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

from nodepool.driver.framework.raw_sections import mappings
from nodepool.driver.kubernetes import names

Section = dict[str, Any]
#: Path in a section, and what is wrong.
Problem = tuple[list[Hashable], str]

#: Keys that may stand beside ``spec``: they say nothing of how the pod is made, or count towards limits, too.
BESIDE_SPEC: Final = (
    *("name", "type", "spec", "labels", "dynamic-labels", "annotations", "python-path", "shell-type"),
    *("cpu", "memory", "storage", "gpu", "gpu-resource", "extra-resources"),
)
#: What a pod may ask for: keys without and with a limit.
RESOURCES: Final = ("cpu", "memory", "storage")


def surplus_keys(label: Section) -> list[str]:
    """Keys of the label of a pod that have no effect: those daemons of Nodepool 11 go on without."""
    if label.get("spec") is None or label.get("type") in ("namespace", "project"):
        return []
    return [key for key in label if key not in BESIDE_SPEC]


def _label_problems(pool: Section, label: Section, is_pod: bool) -> Iterator[Problem]:
    name = label.get("name")
    if isinstance(name, str) and not names.is_label_value(name):
        yield ["name"], f"Kubernetes does not take it as a label's value; allowed are {names.LABEL_VALUE_TEXT}"
    for kind in ("labels", "dynamic-labels", "annotations"):
        yield from _metadata_problems(kind, label.get(kind))
    if not is_pod:
        return
    if isinstance(name, str) and not names.is_dns_label(name):
        yield ["name"], f"a pod is named like its label; allowed are {names.DNS_LABEL_TEXT}, 63 characters"
    if label.get("spec") is not None:
        for key in surplus_keys(label):
            yield [key], f"not beside spec, which is used as it is; beside it: {', '.join(BESIDE_SPEC)}"
        return
    if not label.get("image"):
        yield [], "a pod needs an image; add image, or spec"
    yield from _limit_problems(pool, label)


def _metadata_problems(key: str, found: Any) -> Iterator[Problem]:
    for name, value in (found if isinstance(found, dict) else {}).items():
        if not names.is_key(str(name)):
            yield [key, name], f"no name that Kubernetes takes; allowed are {names.LABEL_VALUE_TEXT}, after domain/"
        elif key == "labels" and not names.is_label_value(names.as_text(value)):
            yield [key, name], f"no value that Kubernetes takes; allowed are {names.LABEL_VALUE_TEXT}"


def _limit_problems(pool: Section, label: Section) -> Iterator[Problem]:
    """The API refuses a pod that asks for more than its limit."""
    for resource in RESOURCES:
        request = label.get(resource, pool.get(f"default-label-{resource}"))
        limit = label.get(f"{resource}-limit", pool.get(f"default-label-{resource}-limit"))
        if isinstance(request, int) and isinstance(limit, int) and 0 < limit < request:
            named = [found for found in (f"{resource}-limit", resource) if found in label]
            yield [*named[:1]], f"the limit of {resource} is {limit}, less than the request, which is {request}"


def label_problems(provider: Section, is_pod: Callable[[Section], bool]) -> Iterator[Problem]:
    """What is wrong with labels of a provider, each by itself, so that daemons can go on without it.

    :param is_pod: does a label, as it stands in the file, make a pod?
    """
    for pool_index, pool in mappings(provider, "pools"):
        for index, label in mappings(pool, "labels"):
            for path, text in _label_problems(pool, label, is_pod(label)):
                yield ["pools", pool_index, "labels", index, *path], text


def usable_labels(is_pod: Callable[[Section], bool], provider: Section) -> Section:
    """A check of a provider, see `label_problems`."""
    return _refuse(provider, label_problems(provider, is_pod))


def usable_names(provider: Section) -> Section:
    """A check of a provider: objects can have the names that are made of its name and those of its pools."""
    return _refuse(provider, _name_problems(provider))


def _name_problems(provider: Section) -> Iterator[Problem]:
    if not names.is_label_value(provider["name"]):
        yield ["name"], f"Kubernetes does not take it as a label's value; allowed are {names.LABEL_VALUE_TEXT}"
    for index, pool in mappings(provider, "pools"):
        if not names.is_dns_label(pool["name"], names.MAX_POOL_CHARACTERS):
            yield (
                ["pools", index, "name"],
                f"namespaces begin with it; allowed are {names.DNS_LABEL_TEXT}, {names.MAX_POOL_CHARACTERS} characters",
            )


def _refuse(section: Section, problems: Iterator[Problem]) -> Section:
    import voluptuous as v

    found = [v.Invalid(text, path=path) for path, text in problems]
    if found:
        raise v.MultipleInvalid(found)
    return section
