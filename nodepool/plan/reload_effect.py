# SPDX-License-Identifier: Apache-2.0
"""What would a daemon do with a changed configuration? (rules G-4 to G-6, G-8, G-13)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from nodepool.plan.config_diff import Change, config_changes
from nodepool.plan.reconfigure import compare
from nodepool.quick_dataclass import dataclass

#: Settings that a running daemon does not take: key or section -> what follows.
_AFTER_RESTART: Final = ("zookeeper-tls", "zookeeper-timeout", "webapp")
_STARTED: Final = "the provider is started, and its pools serve requests"
_STARTED_ANEW: Final = (
    "the provider is started anew with this section; the old one finishes its running launches, nodes stay"
)
_STOPPED: Final = "the provider is stopped; its pools finish what runs, its nodes and images stay untouched"


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
    plan = compare(old.providers, new.providers)
    effects = {
        **dict.fromkeys(plan.added, _STARTED),
        **dict.fromkeys(plan.changed, _STARTED_ANEW),
        **dict.fromkeys(plan.removed, _STOPPED),
    }
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
