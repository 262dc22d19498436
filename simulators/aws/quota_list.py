# SPDX-License-Identifier: Apache-2.0
"""Quotas of the account as Service Quotas has them: codes, names, and values that nobody reaches."""

from __future__ import annotations

from typing import Final, NamedTuple


class SimulatedQuota(NamedTuple):
    """One quota. ``service``: ``ec2`` or ``ebs``; values of storage are in TiB."""

    code: str
    name: str
    service: str = "ec2"
    value: float = 100_000.0


_STANDARD: Final = "Standard (A, C, D, H, I, M, R, T, Z)"

QUOTAS: Final = (
    SimulatedQuota("L-1216C47A", f"Running On-Demand {_STANDARD} instances"),
    SimulatedQuota("L-34B43A08", f"All {_STANDARD} Spot Instance Requests"),
    SimulatedQuota("L-6E869C2A", "Running On-Demand DL instances"),
    SimulatedQuota("L-85EED4F7", "All DL Spot Instance Requests"),
    SimulatedQuota("L-74FC7D96", "Running On-Demand F instances"),
    SimulatedQuota("L-88CF9481", "All F Spot Instance Requests"),
    SimulatedQuota("L-DB2E81BA", "Running On-Demand G and VT instances"),
    SimulatedQuota("L-3819A6DF", "All G and VT Spot Instance Requests"),
    SimulatedQuota("L-43DA4232", "Running On-Demand High Memory instances"),
    SimulatedQuota("L-1945791B", "Running On-Demand Inf instances"),
    SimulatedQuota("L-B5D1601B", "All Inf Spot Instance Requests"),
    SimulatedQuota("L-417A185B", "Running On-Demand P instances"),
    SimulatedQuota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    SimulatedQuota("L-7295265B", "Running On-Demand X instances"),
    SimulatedQuota("L-E3A00192", "All X Spot Instance Requests"),
    SimulatedQuota("L-2C3B7624", "Running On-Demand Trn instances"),
    SimulatedQuota("L-6B0D517C", "All Trn Spot Instance Requests"),
    SimulatedQuota("L-F7808C92", "Running On-Demand HPC instances"),
    SimulatedQuota("L-0263D0A3", "EC2-VPC Elastic IPs"),
    SimulatedQuota("L-8B27377A", "Running Dedicated m5 Hosts"),
    SimulatedQuota("L-5D8DADF5", "Running Dedicated mac2 Hosts"),
    SimulatedQuota("L-B3A130E6", "IOPS for Provisioned IOPS SSD (io1) volumes", "ebs"),
    SimulatedQuota("L-FD252861", "Storage for Provisioned IOPS SSD (io1) volumes, in TiB", "ebs"),
    SimulatedQuota("L-8D977E7E", "IOPS for Provisioned IOPS SSD (io2) volumes", "ebs"),
    SimulatedQuota("L-09BD8365", "Storage for Provisioned IOPS SSD (io2) volumes, in TiB", "ebs"),
    SimulatedQuota("L-D18FCD1D", "Storage for General Purpose SSD (gp2) volumes, in TiB", "ebs"),
    SimulatedQuota("L-7A658B76", "Storage for General Purpose SSD (gp3) volumes, in TiB", "ebs"),
    SimulatedQuota("L-82ACEF56", "Storage for Throughput Optimized HDD (st1) volumes, in TiB", "ebs"),
    SimulatedQuota("L-17AF77E8", "Storage for Cold HDD (sc1) volumes, in TiB", "ebs"),
    SimulatedQuota("L-9CF3C2EB", "Storage for Magnetic (standard) volumes, in TiB", "ebs"),
)
STORAGE: Final = {
    "io1": "L-FD252861",
    "io2": "L-09BD8365",
    "gp2": "L-D18FCD1D",
    "gp3": "L-7A658B76",
    "st1": "L-82ACEF56",
    "sc1": "L-17AF77E8",
    "standard": "L-9CF3C2EB",
}


def vcpu_quota(instance_type: str, spot: bool) -> str:
    """The code of the quota that the vCPUs of an instance count against; "" = there is none."""
    letters = "".join(character for character in instance_type.partition(".")[0].split("-")[0] if character.isalpha())
    pairs = {
        ("a", "c", "d", "h", "i", "m", "r", "t", "z"): ("L-1216C47A", "L-34B43A08"),
        ("dl",): ("L-6E869C2A", "L-85EED4F7"),
        ("f",): ("L-74FC7D96", "L-88CF9481"),
        ("g", "vt"): ("L-DB2E81BA", "L-3819A6DF"),
        ("u",): ("L-43DA4232", ""),
        ("inf",): ("L-1945791B", "L-B5D1601B"),
        ("p",): ("L-417A185B", "L-7212CCBC"),
        ("x",): ("L-7295265B", "L-E3A00192"),
        ("trn",): ("L-2C3B7624", "L-6B0D517C"),
        ("hpc",): ("L-F7808C92", ""),
    }
    for families, codes in pairs.items():
        if letters in families or (letters not in _named(pairs) and letters[:1] in families):
            return codes[spot]
    return ""


def _named(pairs: dict[tuple[str, ...], tuple[str, str]]) -> set[str]:
    return {family for families in pairs for family in families}
