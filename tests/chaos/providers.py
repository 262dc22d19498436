# SPDX-License-Identifier: Apache-2.0
"""What the launchers have besides bare servers: volumes, floating IPs and key scans in the cloud, and static hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.clouds import openstack_section
from tests.support.launcher_config import StaticHost, StaticProvider
from tests.support.section_provider import SectionProvider

#: A second provider of the same cloud, and the most servers of each of its pools.
PROVIDER = "cloud-two"
POOL_SERVERS = 3
SERVERS = 2 * POOL_SERVERS
#: Its labels. A server of the first boots from a volume; one of the second is reached through a floating IP.
VOLUME, FLOATING = "volume", "floating"
#: A provider with hosts that are there anyway, and its label.
STATIC_PROVIDER, STATIC = "hosts", "static"
#: Name and slots of each host.
HOSTS = (("127.60.0.1", 1), ("127.60.0.2", 2), ("127.60.0.3", 1))


def rich_provider(ssh_port: int, launch_timeout: int) -> SectionProvider:
    """Servers with all that may be left behind; each is reached over SSH before it is given out.

    :param ssh_port: where they answer.
    """
    volume = {"name": VOLUME, "cloud-image": "debian", "flavor-name": "small", "volume-size": 5}
    floating = {"name": FLOATING, "cloud-image": "debian", "flavor-name": "small"}
    pools = [
        {"name": VOLUME, "networks": ["provider"], "labels": [{**volume, "boot-from-volume": True}]},
        {"name": FLOATING, "networks": ["private"], "labels": [floating]},
    ]
    more = {
        "name": PROVIDER,
        "launch-timeout": launch_timeout,
        "boot-timeout": launch_timeout,
        "launch-retries": 3,
        "port-cleanup-interval": 5,
        "clean-floating-ips": True,
        "pools": [{**pool, "max-servers": POOL_SERVERS} for pool in pools],
    }
    return SectionProvider({**openstack_section(ssh_port), **more})


def static_provider(ssh_port: int, host_keys: Sequence[str]) -> StaticProvider:
    """The hosts, which must answer at this port with these keys before they are given out."""
    hosts = [StaticHost(name, (STATIC,), ssh_port, check=True, host_keys=host_keys, slots=n) for name, n in HOSTS]
    return StaticProvider(hosts, STATIC_PROVIDER)


def static_nodes(nodes: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Those of these nodes by id that stand on static hosts."""
    return {node_id for node_id, node in nodes.items() if node.get("provider") == STATIC_PROVIDER}


def places_of(nodes: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, int]]:
    """How many of these nodes stand in each slot of each static host: (name, slot) -> nodes."""
    return Counter(
        (str(node.get("hostname")), int(node.get("slot") or 0))
        for node in nodes
        if node.get("provider") == STATIC_PROVIDER
    )


def all_places() -> Counter[tuple[str, int]]:
    """Each slot of each static host, once."""
    return Counter((name, slot) for name, slots in HOSTS for slot in range(slots))
