# SPDX-License-Identifier: Apache-2.0
"""Paths of the Azure Resource Manager: which resource and which operation a request is about. Pure."""

from __future__ import annotations

from typing import NamedTuple

ACTIONS = ("instanceview", "retrievebootdiagnosticsdata", "begingetaccess", "endgetaccess")
#: As the counters call them, whatever the case of a path is.
KINDS = {
    name.lower(): name
    for name in (
        *("virtualMachines", "disks", "images", "networkInterfaces", "publicIPAddresses", "virtualNetworks"),
        *("skus", "usages", "operations", "diskOperations"),
    )
}
PROVIDERS = {
    "virtualMachines": "Microsoft.Compute",
    "disks": "Microsoft.Compute",
    "images": "Microsoft.Compute",
    "networkInterfaces": "Microsoft.Network",
    "publicIPAddresses": "Microsoft.Network",
    "virtualNetworks": "Microsoft.Network",
}


class ArmPath(NamedTuple):
    """A path, taken apart.

    :param kind: of resource, as in `KINDS`; ``resourceGroups`` for the group itself; ``subnets``.
    :param name: "" = all of the kind.
    :param action: on one resource, lower case; "" = none.
    """

    subscription: str
    group: str
    provider: str
    kind: str
    name: str = ""
    action: str = ""
    #: Of a subnet: the network; of operations and usages: the location.
    parent: str = ""


def read_path(path: str) -> ArmPath | None:
    """The parts of a path; None = it is none of ours."""
    parts = [part for part in path.split("/") if part]
    lower = [part.lower() for part in parts]
    if len(parts) < 2 or lower[0] != "subscriptions":
        return None
    subscription, rest, low = parts[1], parts[2:], lower[2:]
    group = ""
    if low[:1] == ["resourcegroups"] and len(rest) >= 2:
        group, rest, low = rest[1], rest[2:], low[2:]
        if not rest:
            return ArmPath(subscription, group, "", "resourceGroups", group)
    if low[:1] != ["providers"] or len(rest) < 3:
        return None
    provider, rest, low = rest[1], rest[2:], low[2:]
    if low[0] == "locations" and len(rest) >= 3:
        kind = KINDS.get(low[2])
        return ArmPath(subscription, group, provider, kind, "/".join(rest[3:]), "", rest[1]) if kind else None
    kind = KINDS.get(low[0])
    if kind is None:
        return None
    if kind == "virtualNetworks" and len(rest) == 4 and low[2] == "subnets":
        return ArmPath(subscription, group, provider, "subnets", rest[3], "", rest[1])
    if len(rest) > 3 or (len(rest) == 3 and low[2] not in ACTIONS):
        return None
    return ArmPath(subscription, group, provider, kind, *rest[1:2], *low[2:3])
