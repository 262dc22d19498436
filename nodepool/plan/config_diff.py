# SPDX-License-Identifier: Apache-2.0
"""What does a new configuration change? No value that may be a secret is shown.

First the changes for a reader (rule J-1), then what a daemon does with a changed file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from nodepool.model.config_keys import Sections, keys_of, names_a_secret
from nodepool.model.event import cut, named

#: Differences of one provider or label that `Change.text` tells; `Change.details` has all.
MAX_DETAILS: Final = 10
#: Longest value that is shown.
MAX_SHOWN: Final = 60
# fmt: off
#: Keys whose texts are shown. Any other text may hold a secret, e.g. ``userdata``; of it only the key is reported.
SHOWN_TEXTS: Final = frozenset(
    (
        "abstract", "allowed-tenants", "availability-zones", "azs", "boot-from-volume", "build-log-dir", "chroot",
        "cloud", "cloud-image", "connection-type", "context", "diskimage", "driver", "elements", "elements-dir",
        "flavor-name", "formats", "host", "image-name", "image-id", "images-dir", "instance-type", "keep-formats",
        "key-name", "labels", "listen_address", "name", "networks", "parent", "placement", "project", "project-id",
        "python-path",
        "region", "region-name", "release", "security-groups", "shell-type", "username", "zone",
    )
)
# fmt: on
#: Instead of a value of a key that is not given.
NOT_GIVEN: Final = "not given"


@dataclass(frozen=True)
class Change:
    """One thing that is another one, or not in both configurations.

    :param kind: ``provider``, ``label``, ``diskimage``, ``tenant`` or ``setting``.
    :param name: of the provider, the label ...; of a setting its key.
    :param what: ``added``, ``removed`` or ``changed``.
    :param details: what is different, one text each, such as ``pools[main].max-servers: 10 -> 20``.
    """

    kind: str
    name: str
    what: str
    details: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The change in one line of bounded length."""
        shown = self.details[:MAX_DETAILS]
        more = len(self.details) - len(shown)
        told = "; ".join([*shown, f"and {more} more"] if more else shown)
        if self.kind == "setting":
            return told
        line = f"{self.kind} {self.name} {self.what}"
        if not told:
            return line
        return f"{line}: {told}" if self.what == "changed" else f"{line} ({told})"


def config_changes(old: Any, new: Any) -> list[Change]:
    """Compare two whole configurations.

    :param old: a `nodepool.config.objects.Config`, as ``new``.
    :return: first what concerns providers, then labels, diskimages, limits and shares of tenants, and other settings;
        empty if no key has another value.
    """
    return [
        *_compared("provider", old.providers, new.providers, _sections, _provider_summary),
        *_compared("label", old.labels, new.labels, _declared, _label_summary),
        *_compared("diskimage", old.diskimages, new.diskimages, _declared),
        *_compared("tenant", old.tenant_resource_limits, new.tenant_resource_limits, dict, _tenant_summary),
        *_compared(
            "share of tenant", old.tenant_shares, new.tenant_shares, vars, lambda share: f"weight {share.weight:g}"
        ),
        *_settings(old, new),
    ]


def _compared(
    kind: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    values: Callable[[Any], Mapping[Any, Any]],
    summary: Callable[[Any], str] = lambda thing: "",
) -> Iterator[Change]:
    """The changes of things that have names.

    :param values: of a thing: its keys and their values.
    :param summary: of one that was added, in a few words.
    """
    for name, what in differences(old, new):
        told = summary(new[name]) if what == "added" else ""
        details: tuple[str, ...] = (told,) if told else ()
        if what == "changed":
            found = tuple(_differences((), values(old[name]), values(new[name])))
            details = found or ("something that it reads beside its section",)
        yield Change(kind, name, what, details)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], equal: Callable[[Any, Any], bool] = operator.eq
) -> Iterator[tuple[str, str]]:
    """What is different: its name, and ``added``, ``changed`` or ``removed`` (rules G-4 to G-6).

    :param equal: are an old one and a new one the same?
    """
    for name in new:
        if name not in old or not equal(old[name], new[name]):
            yield name, "changed" if name in old else "added"
    yield from ((name, "removed") for name in old if name not in new)


def _settings(old: Any, new: Any) -> Iterator[Change]:
    """Keys at the top level."""
    before, after = _settings_of(old), _settings_of(new)
    for name in after:
        for text in _differences((), {name: before.get(name)}, {name: after[name]}):
            yield Change("setting", name, "changed", (text,))


def _settings_of(config: Any) -> dict[str, Any]:
    servers = ", ".join(f"{one.host}:{one.port}{one.chroot or ''}" for one in config.zookeeper_servers)
    found = {"zookeeper-servers": servers, **_declared(config)}
    kind: type = type(config)
    for item in keys_of(kind):
        # Those that are mappings have changes of their own kind.
        sections = getattr(config, item.attribute) if isinstance(item.kind, Sections) else None
        if isinstance(sections, list):
            # A section that has no name is known by its values.
            declared = map(_declared, sections)
            found.setdefault(item.name, [{"name": " ".join(map(str, one.values())), **one} for one in declared])
    return found


# The keys of a thing.


def _sections(provider: Any) -> Mapping[Any, Any]:
    section: Mapping[Any, Any] = provider.provider
    return section


def _declared(thing: Any) -> dict[str, Any]:
    """The declared keys of an object and their values, but for lists of sections."""
    section: type = type(thing)
    items = [item for item in keys_of(section) if item.read and not isinstance(item.kind, Sections)]
    return {item.name: getattr(thing, item.attribute) for item in items}


# What the line of an added thing says.


def _provider_summary(provider: Any) -> str:
    parts = [f"driver {provider.driver.name}"]
    for name, pool in provider.pools.items():
        parts.append(f"pool {name} with {_listed(sorted(pool.labels))}")
    return ", ".join(parts)


def _label_summary(label: Any) -> str:
    return f"min-ready {label.min_ready}" if label.min_ready > 0 else ""


def _tenant_summary(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_shown((name,), limit)}" for name, limit in limits.items())


# Differences of values.


def _differences(path: tuple[str, ...], old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[str]:
    """What is different in two sections, or in two mappings in them."""
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if before != after:
            yield from _difference((*path, str(name)), before, after)


def _difference(path: tuple[str, ...], old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _of_mappings(path, old, new)
        return
    sections = _by_name(old), _by_name(new)
    if sections[0] is not None and sections[1] is not None and (sections[0] or sections[1]):
        yield from _of_sections(path, sections[0], sections[1])
        return
    lists = _texts(path, old), _texts(path, new)
    if lists[0] is not None and lists[1] is not None:
        yield from _of_lists(path, lists[0], lists[1])
        return
    before, after = _shown(path, old), _shown(path, new)
    hidden = before is None or after is None or before == after
    yield f"{_joined(path)} changed" if hidden else f"{_joined(path)}: {before} -> {after}"


def _of_mappings(path: tuple[str, ...], old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[str]:
    """Mappings whose keys an operator chooses, such as ``env-vars``: their values may be secrets."""
    found = dict(differences(old, new))
    for name in (name for name in dict.fromkeys([*old, *new]) if name in found):
        yield f"{_joined((*path, cut(str(name), MAX_SHOWN)))} {found[name]}"


def _of_sections(path: tuple[str, ...], old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Lists of sections that have names, such as pools."""
    *above, last = path
    for name, what in differences(old, new):
        place = (*above, f"{last}[{name}]")
        if what == "changed":
            yield from _differences(place, old[name], new[name])
        else:
            yield f"{_joined(place)} {what}"
    if list(old) != list(new) and set(old) == set(new):
        yield f"{_joined(path)}: another order"


def _of_lists(path: tuple[str, ...], old: list[str], new: list[str]) -> Iterator[str]:
    """Lists of texts, such as labels of a host."""
    added, removed = [one for one in new if one not in old], [one for one in old if one not in new]
    if added:
        yield f"{_joined(path)}: {_listed(added)} added"
    if removed:
        yield f"{_joined(path)}: {_listed(removed)} removed"
    if not added and not removed and old != new:
        yield f"{_joined(path)}: another order"


def _by_name(value: Any) -> dict[str, Any] | None:
    """The sections of a list by their names; a name that stands in it again gets a number. None = no such list."""
    if value is None:
        return {}
    if not isinstance(value, list):
        return None
    found: dict[str, Any] = {}
    named = any(isinstance(section, Mapping) for section in value)
    for section in value:
        if isinstance(section, str) and named:
            section = {"name": section}
        if not isinstance(section, Mapping) or not isinstance(section.get("name"), str):
            return None
        name = cut(section["name"], MAX_SHOWN)
        again = sum(1 for known in found if known == name or known.startswith(f"{name} #"))
        found[f"{name} #{again + 1}" if again else name] = section
    return found


def _texts(path: tuple[str, ...], value: Any) -> list[str] | None:
    """A list of texts that may be shown; None = it is none."""
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return None
    return [cut(one, MAX_SHOWN) for one in value] if _may_be_shown(path) else None


def _shown(path: tuple[str, ...], value: Any) -> str | None:
    """A value for a reader; None = it is not shown."""
    if value is None:
        return NOT_GIVEN
    if names_a_secret(path):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str) and _may_be_shown(path) and not ("://" in value and "@" in value):
        return cut(value, MAX_SHOWN) or "''"
    return None


def _may_be_shown(path: tuple[str, ...]) -> bool:
    last = path[-1].rsplit(".", 1)[-1]
    return (last in SHOWN_TEXTS or path[0].startswith("zookeeper-")) and not names_a_secret(path)


def _listed(names: Iterable[str]) -> str:
    return named([str(name) for name in names], MAX_DETAILS) or "no label"


def _joined(path: Iterable[str]) -> str:
    return ".".join(path)


# What would a daemon do with a changed configuration? (rules G-4 to G-6, G-8, G-13)

#: Settings that a running daemon does not take: key or section -> what follows.
_AFTER_RESTART: Final = ("zookeeper-tls", "zookeeper-timeout", "webapp")
#: What becomes of a provider.
_EFFECTS: Final = {
    "added": "the provider is started, and its pools serve requests",
    "changed": "the provider is started anew with this section; the old one finishes its running launches, nodes stay",
    "removed": "the provider is stopped; its pools finish what runs, its nodes and images stay untouched",
}


@dataclass(frozen=True)
class Effect:
    """One change, and what follows from it.

    :param effect: empty = nothing but what the change says.
    """

    change: Change
    effect: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self.change), "effect": self.effect}


def reload_effects(old: Any, new: Any, refused: Mapping[str, str]) -> list[Effect]:
    """What a reload does.

    :param old: the configuration in effect, a `nodepool.config.objects.Config`; ``new``: the one to be loaded.
    :param refused: provider of ``new`` -> why its section cannot be used.
    """
    effects = {name: _EFFECTS[what] for name, what in differences(old.providers, new.providers)}
    for name, reason in refused.items():
        before = "the running one goes on with its old section" if name in old.providers else "it is not served"
        effects[name] = f"the new section is refused, {before}: {reason}"
    found = [Effect(change, _effect(change, effects, old, new)) for change in config_changes(old, new)]
    told = {effect.change.name for effect in found if effect.change.kind == "provider"}
    found += [
        Effect(Change("provider", name, "changed"), effects[name])
        for name in new.providers
        if name in refused.keys() - told
    ]
    return found


def _effect(change: Change, providers: Mapping[str, str], old: Any, new: Any) -> str:
    if change.kind == "provider":
        return providers[change.name]
    if change.kind == "label" and change.what == "removed":
        return "requests for it are declined"
    if change.kind != "setting":
        return ""
    if change.name.split(".")[0] in _AFTER_RESTART:
        return "takes effect after a restart"
    if change.name == "zookeeper-servers":
        if {server.chroot for server in old.zookeeper_servers} != {server.chroot for server in new.zookeeper_servers}:
            return "another chroot takes effect after a restart"
        return "used from the next connection on, without a restart"
    return ""
