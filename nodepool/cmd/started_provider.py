# SPDX-License-Identifier: Apache-2.0
"""A provider of the configuration, started for one command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.cmd.app import CommandError

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.interface import Provider
    from nodepool.zk.zookeeper import ZooKeeper


@contextlib.contextmanager
def started_provider(zk: ZooKeeper, config: Config, name: str) -> Iterator[Provider]:
    """Inside, a provider of the configuration runs. Blocks as long as its driver does.

    :raises CommandError: it cannot be used or started.
    """
    from nodepool.driver import gateway
    from nodepool.driver.framework.unavailable import UnavailableProviderConfig
    from nodepool.runtime.providers import start_now

    provider_config = config.providers[name]
    if isinstance(provider_config, UnavailableProviderConfig):
        raise CommandError(f"provider {name} cannot be used: {provider_config.reason}")
    with told_in_a_line(f"provider {name} cannot be started"):
        provider = start_now(provider_config, zk)
    try:
        yield provider
    finally:
        gateway.stop_provider(provider)
        gateway.join_provider(provider)


@contextlib.contextmanager
def told_in_a_line(what: str) -> Iterator[None]:
    """Whatever a driver raises inside, the operator gets a line and no traceback.

    :param what: begins the line; the reason follows.
    :raises CommandError: instead of what was raised.
    """
    try:
        yield
    except CommandError:
        raise
    except Exception as error:
        # Nothing is known of what a driver may raise.
        raise CommandError(f"{what}: {str(error) or type(error).__name__}") from error
