# SPDX-License-Identifier: Apache-2.0
"""What a daemon says of itself in the log when it begins, and when it serves something else (rule J-9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.unavailable import UnavailableProviderConfig

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.config import ProviderConfig

#: Names that one list has at most.
MAX_NAMES: Final = 30


def sources(config: Config, path: str, secure_path: str | None) -> str:
    """The files of a configuration, and where ZooKeeper is."""
    files = path if secure_path is None else f"{path} and {secure_path}"
    servers = ", ".join(f"{one.host}:{one.port}{one.chroot or ''}" for one in config.zookeeper_servers)
    return f"Configuration: {files}; ZooKeeper: {servers}"


def served(config: Config) -> str:
    """Providers, pools and labels that a launcher serves."""
    usable, unusable = _split(config)
    labels = {label for provider in usable for pool in provider.pools.values() for label in pool.labels}
    parts = [_listed("provider", [_with_pools(provider) for provider in usable], "; ")]
    parts.append(_listed("label", sorted(labels)))
    without_pool = sorted(set(config.labels) - labels)
    if without_pool:
        parts.append(_listed("label", without_pool, what=" without a pool"))
    return "Serving " + ". ".join([*parts, *_not_served(unusable)])


def built(config: Config) -> str:
    """Images that a builder builds, and providers that it uploads them to."""
    usable, unusable = _split(config)
    images = sorted(name for name, image in config.diskimages.items() if not image.abstract)
    targets = [provider.name for provider in usable if provider.manage_images and getattr(provider, "diskimages", None)]
    parts = [_listed("diskimage", images), f"Uploading to {_listed('provider', targets)}"]
    return "Building " + ". ".join([*parts, *_not_served(unusable)])


def _split(config: Config) -> tuple[list[ProviderConfig], list[str]]:
    """Providers that can be used, and the names of the others."""
    providers = config.providers
    unusable = [name for name, made in providers.items() if isinstance(made, UnavailableProviderConfig)]
    return [made for name, made in providers.items() if name not in unusable], unusable


def _not_served(names: Sequence[str]) -> Iterable[str]:
    """The log has the cause of each already."""
    return [f"Not usable: {_listed('provider', names)}"] if names else []


def _with_pools(provider: ProviderConfig) -> str:
    pools = list(provider.pools)
    shown = ", ".join(pools[:MAX_NAMES])
    more = f" and {len(pools) - MAX_NAMES} more" if len(pools) > MAX_NAMES else ""
    return f"{provider.name} ({provider.driver.name}: {shown}{more})"


def _listed(noun: str, names: Sequence[str], separator: str = ", ", what: str = "") -> str:
    if not names:
        return f"no {noun}{what}"
    shown = separator.join(names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''}{what}: {shown}{more}"
