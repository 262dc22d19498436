# SPDX-License-Identifier: Apache-2.0
"""Which quota of the account an instance or a volume counts against (AW-12, AW-13). Pure.

Service Quotas names the families in the names of its quotas, such as "Running On-Demand Standard (A, C, D, H, I, M, R,
T, Z) instances", so that families to come are known. Until it has answered, the codes of Nodepool 11 count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

#: Families -> code of instances on demand, of spot instances (AW-12).
_RELEASED: Final[dict[tuple[str, ...], tuple[str, str | None]]] = {
    ("a", "c", "d", "h", "i", "m", "r", "t", "z"): ("L-1216C47A", "L-34B43A08"),
    ("dl",): ("L-6E869C2A", "L-85EED4F7"),
    ("f",): ("L-74FC7D96", "L-88CF9481"),
    ("g", "vt"): ("L-DB2E81BA", "L-3819A6DF"),
    ("u",): ("L-43DA4232", None),
    ("inf",): ("L-1945791B", "L-B5D1601B"),
    ("p",): ("L-417A185B", "L-7212CCBC"),
    ("x",): ("L-7295265B", "L-E3A00192"),
    ("trn",): ("L-2C3B7624", "L-6B0D517C"),
    ("hpc",): ("L-F7808C92", None),
}
#: Type of volume -> code of its storage in GiB, of its IOPS (AW-13).
VOLUMES: Final[dict[str, tuple[str, str | None]]] = {
    "io1": ("L-FD252861", "L-B3A130E6"),
    "io2": ("L-09BD8365", "L-8D977E7E"),
    "gp2": ("L-D18FCD1D", None),
    "gp3": ("L-7A658B76", None),
    "st1": ("L-82ACEF56", None),
    "sc1": ("L-17AF77E8", None),
    "standard": ("L-9CF3C2EB", None),
}
#: Of these codes the limit is in TiB. Nodepool 11 takes 1000 GiB for one.
STORAGE: Final = frozenset(storage for storage, _ in VOLUMES.values())
GIB_A_TIB: Final = 1000

_ON_DEMAND: Final = re.compile(r"Running On-Demand (.+?) instances", re.IGNORECASE)
_SPOT: Final = re.compile(r"All (.+?) Spot Instance Requests", re.IGNORECASE)
_HOSTS: Final = re.compile(r"Running Dedicated (\S+) Hosts", re.IGNORECASE)
_FAMILY: Final = re.compile(r"[a-z]+\d*")
#: What Service Quotas calls the families ``u-6tb1``, ``u7i`` ...
_HIGH_MEMORY: Final = "high memory"
#: Instances of macOS are on dedicated hosts only, which have quotas of their own.
_ONLY_ON_HOSTS: Final = frozenset({"mac"})


class AccountQuota(NamedTuple):
    """One quota of Service Quotas."""

    code: str
    name: str
    value: float


class QuotaCodes:
    """Codes by the names of types.

    :param quotas: of the service ``ec2``; none = Service Quotas has not answered.
    """

    def __init__(self, quotas: Iterable[AccountQuota] = ()) -> None:
        self._on_demand = {family: codes[0] for families, codes in _RELEASED.items() for family in families}
        self._spot = {
            family: codes[1] for families, codes in _RELEASED.items() for family in families if codes[1] is not None
        }
        self._hosts: dict[str, str] = {}
        for quota in quotas:
            if found := _ON_DEMAND.fullmatch(quota.name):
                self._on_demand.update(dict.fromkeys(_families(found[1]), quota.code))
            elif found := _SPOT.fullmatch(quota.name):
                self._spot.update(dict.fromkeys(_families(found[1]), quota.code))
            elif found := _HOSTS.fullmatch(quota.name):
                self._hosts[found[1].lower()] = quota.code

    def of_instance(self, instance_type: str, *, spot: bool) -> str | None:
        """The quota of the vCPUs of an instance; None = it is not known."""
        known = self._on_demand.keys() | self._spot.keys()
        return _code_of(instance_type.lower(), self._spot if spot else self._on_demand, known)

    def of_host(self, instance_type: str) -> str | None:
        """The quota of dedicated hosts for a type; None = it is not known."""
        return self._hosts.get(instance_type.lower().partition(".")[0])


def _families(text: str) -> list[str]:
    """The families that the name of a quota lists: "Standard (A, C)", "G and VT", "P4, P3 and P2", "High Memory"."""
    if text.lower() == _HIGH_MEMORY:
        return ["u"]
    listed = re.search(r"\((.+)\)", text)
    return _FAMILY.findall((listed[1] if listed else text).lower().replace(" and ", ", "))


def _code_of(instance_type: str, codes: Mapping[str, str], known: Collection[str]) -> str | None:
    """:param known: families that have a quota, if not this one."""
    found = re.match(r"([a-z]+)(\d*)", instance_type)
    if found is None or found[1] in _ONLY_ON_HOSTS:
        return None
    letters, generation = found.groups()
    # Some generations have a quota of their own.
    names = [letters + generation, letters]
    if letters not in known:
        # "im4gn" belongs to "I", "gr6" to "G".
        names += [letters[:length] for length in range(len(letters) - 1, 0, -1)]
    return next((codes[name] for name in names if name in codes), None)
