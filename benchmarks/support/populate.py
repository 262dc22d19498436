# SPDX-License-Identifier: Apache-2.0
"""Many nodes and requests in ZooKeeper at once, as a busy launcher and a busy Zuul would have left them."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterable
from itertools import islice
from typing import Any

from tests.support.pool_znodes import NODES, REQUESTS, PoolZnodes

#: Creations under way at once.
WINDOW = 500


def create_nodes(znodes: PoolZnodes, count: int, label: str, **fields: Any) -> list[str]:
    """``count`` nodes of a label, e.g. with ``state``, ``provider`` and ``pool``. Returns their ids."""
    now = time.time()
    common = {"state": "ready", "state_time": now, "created_time": now, "type": [label], "allocated_to": None, **fields}
    return _create(znodes, f"{NODES}/", ({**common, **_machine(number)} for number in range(count)))


def create_requests(
    znodes: PoolZnodes, count: int, label: str, requestor: str = "somebody-else", tenants: Iterable[str] = ("tenant",)
) -> list[str]:
    """``count`` requests for one node of a label, from a Zuul that may not be here. Returns their ids.

    :param tenants: that ask in turn.
    """
    now = time.time()
    request = {
        "requestor_data": {"build_set_uuid": None, "tenant_name": "tenant", "job_name": "job"},
        "node_types": [label],
        "requestor": requestor,
        "created_time": now,
        "provider": None,
        "state": "requested",
        "state_time": now,
        "relative_priority": 0,
    }
    asking = islice(itertools.cycle(tenants), count)
    records = ({**request, "tenant_name": tenant, "event_id": uuid.uuid4().hex} for tenant in asking)
    return _create(znodes, f"{REQUESTS}/200-", records)


def _machine(number: int) -> dict[str, Any]:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "external_id": str(uuid.uuid4()),
        "hostname": f"node-{number}",
        "interface_ip": address,
        "public_ipv4": address,
        "private_ipv4": address,
        "public_ipv6": "",
        "cloud": "cloud",
        "region": "RegionOne",
        "az": "nova",
        "launcher": "another-launcher",
        "username": "zuul",
        "connection_port": 22,
        "connection_type": "ssh",
        "python_path": "auto",
        "resources": {"instances": 1, "cores": 1, "ram": 1024},
        # A machine's three keys are most of its record.
        "host_keys": [f"ssh-rsa {'A' * 372}", f"ecdsa-sha2-nistp256 {'B' * 140}", f"ssh-ed25519 {'C' * 68}"],
    }


def _create(znodes: PoolZnodes, prefix: str, records: Iterable[dict[str, Any]]) -> list[str]:
    znodes.kazoo.ensure_path(prefix.rpartition("/")[0])
    names: list[str] = []
    rest = iter(records)
    while part := list(islice(rest, WINDOW)):
        answers = [znodes.kazoo.create_async(prefix, json.dumps(record).encode(), sequence=True) for record in part]
        names += [answer.get(60).rsplit("/", 1)[1] for answer in answers]
    return names
