# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` asks of the providers of a configuration. Nothing is started, and nothing is changed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.framework.checks import CheckResult, check_instance, failure
from nodepool.driver.framework.unavailable import UnavailableProviderConfig
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.guard import OnError, settle
from nodepool.runtime.providers import facade_for

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.zk.zookeeper import ZooKeeper

#: How long all providers together are waited for.
LIMIT_SECONDS: Final = 180.0


def check_providers(
    configs: Iterable[ProviderConfig], zk: ZooKeeper | None, limit: float = LIMIT_SECONDS
) -> dict[str, list[CheckResult]]:
    """Check providers, all at the same time; blocks.

    :param zk: None: ZooKeeper cannot be reached; what needs it is left out.
    :param limit: seconds; one that has not answered then has failed, and goes on in the background.
    :return: name of each -> what was found; never empty.
    """
    begun: dict[str, Future[list[CheckResult]]] = {}
    for config in configs:
        outcome: Future[list[CheckResult]] = Future()
        begun[config.name] = outcome
        # Not a pool of threads, which the process would wait for: a driver may hang.
        threading.Thread(target=_settle, args=(config, zk, outcome), name=f"Check-{config.name}", daemon=True).start()
    end = monotonic() + limit
    return {name: _outcome(name, outcome, max(0.0, end - monotonic()), limit) for name, outcome in begun.items()}


def _settle(config: ProviderConfig, zk: ZooKeeper | None, outcome: Future[list[CheckResult]]) -> None:
    settle([outcome], lambda: check_provider(config, zk))


def _outcome(name: str, outcome: Future[list[CheckResult]], seconds: float, limit: float) -> list[CheckResult]:
    subject = f"provider {name}"
    try:
        error = outcome.exception(seconds)
    except TimeoutError:
        return [CheckResult(subject, False, f"its check has not ended within {limit:g} s", "see --debug")]
    return outcome.result() if error is None else [failure(subject, error)]


def check_provider(config: ProviderConfig, zk: ZooKeeper | None) -> list[CheckResult]:
    """Check one provider; returns at least one result. Blocks as long as its driver does, and raises what it raises."""
    subject = f"provider {config.name}"
    if isinstance(config, UnavailableProviderConfig):
        return [failure(subject, config.reason)]
    name = config.driver.name
    made = gateway.get_provider(config.name, Drivers.get(name), config)
    provider: Provider = check_instance(made, Provider, f"driver {name!r}: getProvider()")
    if zk is not None:
        provider.zk = facade_for(config, zk)
    with OnError(lambda _: _end(provider)):
        found = gateway.preflight(config.name, provider)
    if not found:
        # A driver without checks may not expect to be stopped, because it was never started.
        return [CheckResult(subject, True, f"the section is in order; the driver {name} has no live checks")]
    _end(provider)
    return found


def _end(provider: Provider) -> None:
    """Stop what was never started."""
    provider.zk = None
    gateway.stop_provider(provider)
