# SPDX-License-Identifier: Apache-2.0
"""Metric names, and the rule for text that comes from users (metrics.md, head)."""

from __future__ import annotations

import socket

# Requestors and tenants are named freely by clients: what has a meaning in a name or in the protocol goes.
_NORMALISED = str.maketrans(dict.fromkeys(".:|\r\n", "_"))
# Other names are kept as they are, except for what would end a line early and make a wrong metric of the rest:
# labels and providers of nodes come from ZooKeeper, where anybody may have written them.
_PLAIN = str.maketrans(dict.fromkeys("|\r\n", "_"))


def normalise(text: str) -> str:
    """Text of a requestor or tenant as one part of a name: ``.`` and ``:`` become ``_``."""
    return text.translate(_NORMALISED)


def plain(text: str) -> str:
    """Any other text as a part of a name: unchanged, dots included."""
    return text.translate(_PLAIN)


def short_hostname() -> str:
    """The host part of a launcher's metrics: the host name up to its first dot. Does not ask the network."""
    return socket.gethostname().partition(".")[0]


def nodes(state: str) -> str:
    return f"nodepool.nodes.{state}"


def label_nodes(label: str, state: str) -> str:
    return f"nodepool.label.{plain(label)}.nodes.{state}"


def provider_nodes(provider: str, state: str) -> str:
    return f"nodepool.provider.{plain(provider)}.nodes.{state}"


def addressable_requests(provider: str, pool: str) -> str:
    return f"nodepool.provider.{plain(provider)}.pool.{plain(pool)}.addressable_requests"


def max_servers(provider: str) -> str:
    return f"nodepool.provider.{plain(provider)}.max_servers"


def tenant_limit(tenant: str, limit: str) -> str:
    return f"nodepool.tenant_limits.{normalise(tenant)}.{normalise(limit)}"


def leaked(provider: str, resource: str) -> str:
    """:param resource: plural, e.g. ``instances``."""
    return f"nodepool.provider.{plain(provider)}.leaked.{plain(resource)}"


def provider_resting(hostname: str, provider: str) -> str:
    """Each launcher finds out for itself whether a cloud answers.

    :param hostname: short host name.
    """
    return f"nodepool.launcher.{hostname}.provider.{plain(provider)}.resting"


def provider_rests(provider: str) -> str:
    return f"nodepool.provider.{plain(provider)}.rests"


def launcher_zk(hostname: str, what: str) -> str:
    """:param hostname: short host name."""
    return f"nodepool.launcher.{hostname}.zk.{what}"


def launch_keys(result: str, provider: str, az: str | None, requestor: str | None) -> list[str]:
    """The keys under which one launch is counted (metrics.md 3).

    :param result: ``ready`` or ``error.<class>``.
    """
    keys = [f"nodepool.launch.{result}", f"nodepool.launch.provider.{plain(provider)}.{result}"]
    if az:
        keys.append(f"nodepool.launch.provider.{plain(provider)}.{plain(az)}.{result}")
    if requestor:
        keys.append(f"nodepool.launch.requestor.{normalise(requestor)}.{result}")
    return keys
