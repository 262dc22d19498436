# SPDX-License-Identifier: Apache-2.0
"""The configuration of a running daemon: follows its files (rule G-8)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nodepool.config.objects import Config
from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.unavailable import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.guard import Guard
from nodepool.metrics.catalog import RELOADS
from nodepool.metrics.process import REGISTRY
from nodepool.plan.config_diff import config_changes

#: Changes of one reload that are logged one by one.
MAX_CHANGES: Final = 100


class Source(Protocol):
    """Where the configuration comes from, e.g. `nodepool.config.loader.ConfigSource`."""

    def files(self) -> Sequence[str]:
        """Paths of all that `changed` looks at."""

    def changed(self) -> bool:
        """Is it time for another `load`? Does not parse."""

    def load(self) -> Config:
        """Raises ConfigError."""


class Configuration:
    """Owned by the main thread. Others read `current`, which is replaced as a whole, never changed in place.

    :param apply: puts a changed configuration into effect; gets the old and the new one, which is `current` then.
    """

    def __init__(self, source: Source, apply: Callable[[Config, Config], None], log: logging.Logger) -> None:
        self.log = log
        self.source = source
        self._apply = apply
        self.current: Config
        #: Told "reloading", and then the outcome in a few words; must not block.
        self.on_reload: Callable[[str], None] = lambda phase: None
        #: Told after a reload whether the new configuration is in effect, and what it changes or why it is refused, one
        #: text each; must not block.
        self.on_outcome: Callable[[bool, Sequence[str]], None] = lambda ok, texts: None

    def load(self) -> Config:
        """Load for the first time. Raises ConfigError."""
        self.current = self.source.load()
        return self.current

    def files(self) -> Sequence[str]:
        """Paths of the files that are followed; any of them may be missing."""
        return self.source.files()

    def changed(self) -> bool:
        """Has a file changed since the last load, whether that went well or not?"""
        return self.source.changed()

    def follow(self) -> None:
        """Load again if a file changed. A configuration that is refused changes nothing; why is logged.

        :raises Exception: what ``apply`` raises.
        """
        if not self.changed():
            return
        self.on_reload("reloading")
        outcome = "failed"
        try:
            outcome = self._load_again()
        finally:
            self.on_reload(outcome)

    def _load_again(self) -> str:
        """Load, and put into effect what can be used; returns the outcome in a few words."""
        try:
            config = self.source.load()
        except ConfigError as error:
            self.log.error("The configuration is refused, the running one stays:\n%s", error)
            REGISTRY.count(RELOADS.series("refused"))
            self.on_outcome(False, str(error).splitlines())
            return "serving; the changed configuration file is refused"
        refused = [name for name, made in config.providers.items() if isinstance(made, UnavailableProviderConfig)]
        kept = keep_usable(self.current, config)
        for name, reason in kept.items():
            self.log.error("Provider %s runs on with its old section, the new one cannot be used: %s", name, reason)
        old, self.current = self.current, config
        # A driver's own classes are asked: whatever they raise, the configuration takes effect.
        with Guard(self.log, "What the configuration changes cannot be told") as guard:
            self._tell(old, config)
        if guard.error is not None:
            self.on_outcome(True, ["what it changes cannot be told, the log says why"])
        REGISTRY.count(RELOADS.series("refused" if kept else "applied"))
        if kept:
            self.on_outcome(
                False, [f"provider {name} runs on with its old section: {why}" for name, why in kept.items()]
            )
        self._apply(old, config)
        return f"serving; sections that cannot be used: {', '.join(refused)}" if refused else "serving"

    def _tell(self, old: Config, new: Config) -> None:
        """Log what a configuration changes, one change a line."""
        changes = config_changes(old, new)
        for change in changes[:MAX_CHANGES]:
            extra = {change.kind: change.name} if change.kind in ("provider", "label", "tenant") else None
            self.log.info("Configuration changed: %s", change.text, extra=extra)
        if len(changes) > MAX_CHANGES:
            self.log.info("Configuration changed: %d more changes", len(changes) - MAX_CHANGES)
        if not changes:
            self.log.info("Configuration changed: no key has another value")
        self.on_outcome(True, [change.text for change in changes])


def keep_usable(old: Config, new: Config) -> dict[str, str]:
    """Give each provider whose new section cannot be used the old one, if that could be.

    A slip in a file must not stop what runs, e.g. end launches, or let nodes be missed by clean-up.

    :param new: changed in place.
    :return: name of each such provider -> what is wrong with its new section.
    """
    kept: dict[str, str] = {}
    for name, provider in new.providers.items():
        before = old.providers.get(name)
        if not isinstance(provider, UnavailableProviderConfig) or before is None:
            continue
        if isinstance(before, UnavailableProviderConfig):
            continue
        kept[name] = provider.reason
        new.providers[name] = before
        _announce(before, old, new)
    return kept


def _announce(provider: ProviderConfig, old: Config, new: Config) -> None:
    """Tell a configuration of a provider that was loaded with an older one, as its ``load`` would do."""
    for pool in provider.pools.values():
        for label in pool.labels:
            if label in new.labels:
                new.labels[label].pools.append(pool)
    for name in getattr(provider, "diskimages", None) or ():
        if name in new.diskimages and name in old.diskimages:
            # Which of the formats it has added is not known: one too many does no harm.
            new.diskimages[name].image_types |= old.diskimages[name].image_types
