# SPDX-License-Identifier: Apache-2.0
"""Configuration of the metastatic driver (reference/configuration 10).

::

    providers:
      - name: shared
        driver: metastatic
        pools:
          - name: main
            max-servers: 40             # nodes that jobs see, not backing nodes
            labels:
              - name: small
                backing-label: large    # of another provider
                max-parallel-jobs: 8
                grace-time: 600
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.config import (
    ConfigPool,
    ImageSettings,
    LabelSettings,
    ProviderConfig,
    integer,
    nonempty,
    number,
)
from nodepool.driver.metastatic.records import MAX_SLOTS
from nodepool.exceptions import ConfigError
from nodepool.plan.backing import BackingKind, Rules

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Keys that say what becomes of a backing node, and what they are if not given.
RULE_KEYS: Final[dict[str, int | None]] = {
    "max-parallel-jobs": 1,
    "grace-time": 60,
    "min-retention-time": 0,
    "max-age": None,
}


class MetastaticLabel(LabelSettings):
    """What nodes of a label stand on."""

    def __init__(self, pool: MetastaticPool, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.kind = BackingKind(self.name, data["backing-label"])
        values: dict[str, Any] = {key: data.get(key, default) for key, default in RULE_KEYS.items()}
        self.rules = Rules(
            values["max-parallel-jobs"], values["grace-time"], values["min-retention-time"], values["max-age"]
        )
        # Stands for the backing node's image; how to log in is taken from the backing node.
        self.cloud_image: ImageSettings = ImageSettings({"name": self.kind.backing_label})
        self.host_key_checking: bool = data.get("host-key-checking", pool.host_key_checking)


class MetastaticPool(ConfigPool):
    """``max_servers`` counts requested nodes, not backing nodes."""

    def __init__(self, provider: MetastaticProviderConfig) -> None:
        super().__init__()
        self.provider = provider
        self.labels: dict[str, MetastaticLabel] = {}
        self.host_key_checking = False

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.host_key_checking = pool_config.get("host-key-checking", False)
        for data in pool_config.get("labels") or []:
            self.labels[data["name"]] = MetastaticLabel(self, data)


class MetastaticProviderConfig(ProviderConfig):
    """One ``providers[]`` section with ``driver: metastatic``."""

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self._pools: dict[str, MetastaticPool] = {}
        self.launch_retries = 3
        #: Both in seconds.
        self.launch_timeout = 3600.0
        self.boot_timeout = 120.0

    @property
    def pools(self) -> dict[str, MetastaticPool]:
        return self._pools

    @property
    def manage_images(self) -> bool:
        return False

    def rules(self) -> dict[BackingKind, Rules]:
        """Of every kind of backing node that some label needs."""
        return {label.kind: label.rules for pool in self._pools.values() for label in pool.labels.values()}

    def load(self, newconfig: Config) -> None:
        """Parse the section.

        :raises ConfigError: labels contradict each other, or those of the metastatic providers that were read before.
        """
        data = self.provider
        others = [other for other in newconfig.providers.values() if isinstance(other, MetastaticProviderConfig)]
        for _, problem in contradictions(data, [other.provider for other in others]):
            raise ConfigError(f"provider {self.name}: {problem}")
        self.launch_retries = data.get("launch-retries", self.launch_retries)
        self.launch_timeout = float(data.get("launch-timeout", self.launch_timeout))
        self.boot_timeout = float(data.get("boot-timeout", self.boot_timeout))
        for section in data.get("pools") or []:
            pool = MetastaticPool(self)
            pool.load(section)
            self._pools[pool.name] = pool
            for label in pool.labels:
                newconfig.labels[label].pools.append(pool)

    def getSchema(self) -> Any:
        """Schema of the whole section; it also refuses labels that contradict each other."""
        import voluptuous as v

        label = {
            v.Required("name"): nonempty(),
            v.Required("backing-label"): nonempty(),
            "max-parallel-jobs": integer(1, MAX_SLOTS),
            "grace-time": integer(0),
            "min-retention-time": integer(0),
            "max-age": v.Any(integer(0), None),
            "host-key-checking": bool,
        }
        pool = {**ConfigPool.getCommonSchemaDict(), "host-key-checking": bool, "labels": [label]}
        section = {
            **ProviderConfig.getCommonSchemaDict(),
            "launch-retries": integer(1),
            "launch-timeout": number(0),
            "boot-timeout": number(0),
            "rate": number(0),
            "pools": [pool],
        }
        return v.Schema(v.All(section, _refuse_contradictions))


def _refuse_contradictions(provider: dict[str, Any]) -> dict[str, Any]:
    import voluptuous as v

    problems = [v.Invalid(text, path=path) for path, text in contradictions(provider)]
    if problems:
        raise v.MultipleInvalid(problems)
    return provider


def contradictions(
    provider: dict[str, Any], others: Iterable[dict[str, Any]] = ()
) -> Iterator[tuple[list[Hashable], str]]:
    """Labels that do not fit together: path inside the provider section, and what is wrong.

    :param others: sections of other metastatic providers.
    """
    first: dict[str, Mapping[str, Any]] = {}
    backing_of: dict[str, set[str]] = {}
    labels = list(_labels(provider))
    for _, data in [*labels, *(label for other in others for label in _labels(other))]:
        backing_of.setdefault(data["name"], set()).add(data["backing-label"])
    for path, data in labels:
        yield from _too_short(path, data)
        if circle := _circle(data["name"], backing_of):
            yield (
                [*path, "backing-label"],
                f"label {data['name']!r} would stand on itself ({' on '.join(circle)}); backing-label must be a label "
                "that a provider of another kind offers in the end",
            )
        other = first.setdefault(data["backing-label"], data)
        for key, default in RULE_KEYS.items():
            mine, theirs = data.get(key, default), other.get(key, default)
            if mine != theirs:
                yield (
                    [*path, key if key in data else "backing-label"],
                    f"{key} of label {data['name']!r} is {_text(mine)}, that of {other['name']!r} is {_text(theirs)}; "
                    f"labels with the same backing-label ({data['backing-label']!r}) must agree on "
                    f"{', '.join(RULE_KEYS)}",
                )


def _too_short(path: list[Hashable], data: Mapping[str, Any]) -> Iterator[tuple[list[Hashable], str]]:
    max_age, retention = data.get("max-age"), data.get("min-retention-time", 0)
    if max_age is not None and max_age < retention:
        yield (
            [*path, "max-age"],
            f"max-age is {max_age}, it must not be less than min-retention-time, which is {retention}",
        )


def _circle(label: str, backing_of: Mapping[str, set[str]]) -> list[str]:
    """The labels from a label to itself, if a backing node for it would need, in the end, a node of the same label."""
    seen: set[str] = set()
    ways = [[label]]
    while ways:
        way = ways.pop()
        for found in sorted(backing_of.get(way[-1], ())):
            if found == label:
                return [*way, found]
            if found not in seen:
                seen.add(found)
                ways.append([*way, found])
    return []


def _labels(provider: dict[str, Any]) -> Iterator[tuple[list[Hashable], dict[str, Any]]]:
    for pool_index, pool in enumerate(provider.get("pools") or []):
        for index, data in enumerate(pool.get("labels") or []):
            yield ["pools", pool_index, "labels", index], data


def _text(value: Any) -> str:
    return "not set" if value is None else str(value)
