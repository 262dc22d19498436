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

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ImageSettings, LabelSettings, Problem, section_check
from nodepool.driver.framework.sections import DeclaredPool, LaunchingProviderConfig
from nodepool.driver.metastatic.backing import MAX_SLOTS
from nodepool.exceptions import ConfigError
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    SECONDS,
    WHOLE,
    ConfigValue,
    From,
    Number,
    Sections,
    Whole,
    key,
    keys_of,
)
from nodepool.plan.backing import BackingKind, Rules

if TYPE_CHECKING:
    from nodepool.config.objects import Config


class RuleSettings(ConfigValue):
    """Keys of a label that say what becomes of a backing node; the attributes are those of `plan.backing.Rules`."""

    slots: int = key(
        Whole(1, MAX_SLOTS),
        1,
        "Slots of a backing node. Backing nodes that are there keep the slots that they have.",
        name="max-parallel-jobs",
    )
    grace_seconds: int = key(
        Whole(0),
        60,
        "An empty backing node is kept so long. The time goes on while the launcher is restarted.",
        name="grace-time",
        unit="seconds",
    )
    min_retention_seconds: int = key(
        Whole(0),
        0,
        "A backing node is kept at least so long, for clouds that charge for a minimum time.",
        name="min-retention-time",
        unit="seconds",
    )
    max_age_seconds: int | None = key(
        Whole(0).or_null(),
        None,
        "A backing node of this age gets no new nodes; it is released when it is empty. Not less than "
        "``min-retention-time``.",
        name="max-age",
        unit="seconds",
    )


class MetastaticLabel(LabelSettings):
    """What nodes of a label stand on."""

    keys_also_of: ClassVar[tuple[type, ...]] = (RuleSettings,)

    backing_label: str = key(
        FILLED_TEXT,
        REQUIRED,
        "The label of backing nodes. Another provider must offer it, of this launcher or of another one. It may be "
        "metastatic, too, but no label may stand on itself in the end.",
    )
    host_key_checking: bool = key(FLAG, From("pool"), "Instead of that of the pool.")

    def __init__(self, pool: MetastaticPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.read_keys(data)
        self.kind = BackingKind(self.name, self.backing_label)
        self.rules = Rules(**{item.attribute: item.value(self, data) for item in keys_of(RuleSettings)})
        # Stands for the backing node's image; how to log in is taken from the backing node.
        self.cloud_image: ImageSettings = ImageSettings({"name": self.backing_label})


class MetastaticPool(DeclaredPool):
    """``max_servers`` counts requested nodes, not backing nodes."""

    max_servers: float = key(
        WHOLE,
        math.inf,
        "Limit of the nodes that jobs get, not of backing nodes. Limit those in the pool that they come from.",
    )
    host_key_checking: bool = key(
        FLAG,
        False,
        "true: with each slot that is given out the backing node is contacted, and its host keys are read if they are "
        "not known. One that does not answer gets no new nodes and is released as soon as it is empty.",
    )
    labels: dict[str, MetastaticLabel] = key(Sections(MetastaticLabel), None, "What nodes stand on.")


def contradictions(provider: dict[str, Any], others: Iterable[dict[str, Any]] = ()) -> Iterator[Problem]:
    """Labels that do not fit together: path inside the provider section, and what is wrong.

    :param others: sections of other metastatic providers.
    """
    first: dict[str, Mapping[str, Any]] = {}
    backing_of: dict[str, set[str]] = {}
    labels = list(_labels(provider))
    for _, data in [*labels, *(label for other in others for label in _labels(other))]:
        backing_of.setdefault(data["name"], set()).add(data["backing-label"])
    for path, data in labels:
        max_age, retention = data.get("max-age"), data.get("min-retention-time", 0)
        if max_age is not None and max_age < retention:
            text = f"max-age is {max_age}, it must not be less than min-retention-time, which is {retention}"
            yield [*path, "max-age"], text
        if circle := _circle(data["name"], backing_of):
            yield (
                [*path, "backing-label"],
                f"label {data['name']!r} would stand on itself ({' on '.join(circle)}); backing-label must be a label "
                "that a provider of another kind offers in the end",
            )
        other = first.setdefault(data["backing-label"], data)
        rules = keys_of(RuleSettings)
        for rule in rules:
            mine, theirs = rule.value(None, data), rule.value(None, other)
            if mine != theirs:
                yield (
                    [*path, rule.name if rule.name in data else "backing-label"],
                    f"{rule.name} of label {data['name']!r} is {_text(mine)}, that of {other['name']!r} is "
                    f"{_text(theirs)}; labels with the same backing-label ({data['backing-label']!r}) must agree on "
                    f"{', '.join(rule.name for rule in rules)}",
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


class MetastaticProviderConfig(LaunchingProviderConfig[MetastaticPool]):
    """One ``providers[]`` section with ``driver: metastatic``."""

    checks: ClassVar[tuple[Any, ...]] = (section_check(contradictions),)

    launch_retries: int = key(
        Whole(1),
        3,
        "Attempts in all to get a slot. One fails when the request for a backing node fails, or when the backing node "
        "does not answer.",
    )
    launch_timeout: float = key(SECONDS, 3600.0, "Limit of one attempt; it includes the wait for a new backing node.")
    boot_timeout: float = key(SECONDS, 120.0, "Limit of the scan of host keys.")
    rate: None = key(Number(0), None, "Accepted, without effect.", read=False)
    _pools: dict[str, MetastaticPool] = key(Sections(MetastaticPool), None, "The pools of the provider.", name="pools")

    def rules(self) -> dict[BackingKind, Rules]:
        """Of every kind of backing node that some label needs."""
        return {label.kind: label.rules for pool in self._pools.values() for label in pool.labels.values()}

    def load(self, newconfig: Config) -> None:
        """Parse the section.

        :raises ConfigError: labels contradict each other, or those of the metastatic providers that were read before.
        """
        others = [other for other in newconfig.providers.values() if isinstance(other, MetastaticProviderConfig)]
        for _, problem in contradictions(self.provider, [other.provider for other in others]):
            raise ConfigError(f"provider {self.name}: {problem}")
        super().load(newconfig)
