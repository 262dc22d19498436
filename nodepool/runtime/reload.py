# SPDX-License-Identifier: Apache-2.0
"""The configuration of a running daemon: follows its files (rule G-8)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nodepool.clock import monotonic
from nodepool.config.loader import ConfigSource
from nodepool.config.objects import Config
from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.guard import Guard
from nodepool.metrics.catalog import RELOADS
from nodepool.metrics.registry import REGISTRY
from nodepool.plan.config_diff import config_changes
from nodepool.plan.retries import Backoff

#: Changes of one reload that are logged one by one.
MAX_CHANGES: Final = 100
#: From a reload that failed to the next attempt.
RETRY: Final = Backoff(1.0, 60.0)


class Configuration:
    """Owned by the main thread. Others read `current` and `trouble`, which are replaced as a whole, never in place.

    :param parts: what follows the configuration, by names for people, in order. Each puts one into effect. After an
        error, its own or that of another part, it is called again with the same one.
    :param look_again: called after the parts: `current` may be another one. Must not block.
    """

    def __init__(
        self,
        source: ConfigSource,
        parts: Mapping[str, Callable[[Config], None]],
        look_again: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self.log = log
        self.source = source
        self._parts = parts
        self._look_again = look_again
        #: The last one that is wholly in effect.
        self.current: Config
        #: The last one that can be used. It is `current`, unless it is not wholly in effect.
        self._next: Config
        #: What `_next` changes, and what cannot be used of the file as it was loaded last, one text each.
        self._changes: Sequence[str] = ()
        self._refused: Sequence[str] = ()
        #: Providers of `_next` whose sections cannot be used.
        self._unusable: Sequence[str] = ()
        #: Why the file is not in effect, perhaps in part, one text each. Empty = it is.
        self.trouble: Sequence[str] = ()
        #: What is done again at ``_due``, monotonic seconds, unless the file changes before; None = nothing.
        self._retry: Callable[[], str] | None = None
        self._due = 0.0
        self._failures = 0
        #: Told "reloading", and then the outcome in a few words; must not block.
        self.on_reload: Callable[[str], None] = lambda phase: None
        #: Called after a reload: is the new configuration in effect, and what does it change, or why is it not? One
        #: text each; must not block.
        self.on_outcome: Callable[[bool, Sequence[str]], None] = lambda ok, texts: None

    def load(self) -> Config:
        """Load for the first time. Raises ConfigError."""
        self.current = self._next = self.source.load()
        return self.current

    def changed(self) -> bool:
        """Has a file changed since the last load, whether that went well or not?"""
        return self.source.changed()

    def follow(self) -> None:
        """Load again if a file changed, or try again what failed. Does not raise; the log has what is wrong.

        A configuration that is refused changes nothing.
        """
        if self.changed():
            step, self._failures = self._load_again, 0
        elif self._retry is not None and monotonic() >= self._due:
            step = self._retry
        else:
            return
        self.on_reload("reloading")
        outcome = "serving; the changed configuration file is not in effect"
        # Whatever a driver raises where it is loaded, the next attempt may find it mended.
        with Guard(self.log, "Reload: the configuration could not be loaded") as guard:
            outcome = step()
        if guard.error is not None:
            self._failed(self._load_again, [f"the configuration could not be loaded: {_text(guard.error)}"])
        self.on_reload(outcome)

    def _load_again(self) -> str:
        """Load, and put into effect what can be used; returns the outcome in a few words."""
        try:
            config = self.source.load()
        except ConfigError as error:
            self.log.error("The configuration is refused, the running one stays:\n%s", error)
            REGISTRY.count(RELOADS.series("refused"))
            self._refused = str(error).splitlines()
            self._ended(False, self._refused)
            # An earlier file may be in effect only in part.
            self._retry = None if self._next is self.current else self._put_into_effect
            return "serving; the changed configuration file is refused"
        made = config.providers.items()
        self._unusable = [name for name, provider in made if isinstance(provider, UnavailableProviderConfig)]
        kept = keep_usable(self._next, config)
        for name, reason in kept.items():
            self.log.error("Provider %s runs on with its old section, the new one cannot be used: %s", name, reason)
        self._next = config
        self._refused = [f"provider {name} runs on with its old section: {why}" for name, why in kept.items()]
        self._changes = ["what it changes is not known, the log says why"]
        # A driver's own classes are asked: whatever they raise, the configuration takes effect.
        with Guard(self.log, "What the configuration changes is not known"):
            self._changes = self._tell(self.current, config)
        return self._put_into_effect()

    def _put_into_effect(self) -> str:
        """See `_load_again`. A part that fails keeps no other from its turn."""
        config, failed, done = self._next, dict[str, Exception](), list[str]()
        for name, part in self._parts.items():
            with Guard(self.log, "Reload: %s could not be changed", name) as guard:
                part(config)
            if guard.error is None:
                done.append(name)
            else:
                failed[name] = guard.error
        if not failed:
            self.current, self._retry = config, None
        self._look_again()
        if failed:
            texts = [f"{name} could not be changed: {_text(error)}" for name, error in failed.items()]
            self._failed(self._put_into_effect, [*texts, f"changed: {', '.join(done) or 'nothing'}"])
            return "serving; the changed configuration file is not wholly in effect"
        REGISTRY.count(RELOADS.series("refused" if self._refused else "applied"))
        self._ended(True, self._changes)
        if self._refused:
            self._ended(False, self._refused)
        unusable = ", ".join(self._unusable)
        return f"serving; sections that cannot be used: {unusable}" if unusable else "serving"

    def _failed(self, retry: Callable[[], str], texts: Sequence[str]) -> None:
        """Try again later, and tell why."""
        self._failures += 1
        delay = RETRY.pause(self._failures)
        self._retry, self._due = retry, monotonic() + delay
        self.log.error("The reload failed, it is tried again in %g s: %s", delay, "; ".join(texts))
        if self._failures == 1:
            REGISTRY.count(RELOADS.series("failed"))
        told = [*texts, *self._refused]
        if told != self.trouble:
            self._ended(False, told)

    def _ended(self, ok: bool, texts: Sequence[str]) -> None:
        self.trouble = [] if ok else texts
        self.on_outcome(ok, texts)

    def _tell(self, old: Config, new: Config) -> list[str]:
        """Log what a configuration changes, one change a line; returns the texts."""
        changes = config_changes(old, new)
        for change in changes[:MAX_CHANGES]:
            extra = {change.kind: change.name} if change.kind in ("provider", "label", "tenant") else None
            self.log.info("Configuration changed: %s", change.text, extra=extra)
        if len(changes) > MAX_CHANGES:
            self.log.info("Configuration changed: %d more changes", len(changes) - MAX_CHANGES)
        if not changes:
            self.log.info("Configuration changed: no key has another value")
        return [change.text for change in changes]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


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
            new.diskimages[name].conversions |= old.diskimages[name].conversions
