# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.types`, ``instance`` and ``quota``."""

from __future__ import annotations

import math
from typing import Any

from nodepool.driver.ibmvpc.facts import limits_of, need_of
from nodepool.driver.ibmvpc.machines import IbmInstance
from nodepool.driver.ibmvpc.types import IbmImage, IbmProfile, IbmRecord, IbmSubnet, IbmVolume
from tests.unit.driver.ibmvpc.support import GROUP, METADATA, PROVIDER, floating, label_of, load, section
from tests.unit.driver.simulated_adapter import HOST

INSTANCE: dict[str, Any] = {
    "id": "0717_1",
    "name": HOST,
    "status": "running",
    "status_reasons": [],
    "resource_group": {"id": "g", "name": GROUP},
    "profile": {"name": "bx2-2x8"},
    "vcpu": {"architecture": "amd64", "count": 2},
    "memory": 8,
    "zone": {"name": "us-south-1"},
    "primary_network_interface": {"id": "nic-1", "primary_ip": {"address": "10.0.0.5"}},
    "availability": {"class": "standard"},
}


def record(**changes: Any) -> IbmRecord:
    return IbmRecord.of({**INSTANCE, **changes}, PROVIDER)


def test_record() -> None:
    """IV-3: an instance of ours is known by its name, which is stored before it is made (CM-8)."""
    found = record()
    assert (found.id, found.instance_id, found.status, found.metadata) == (HOST, "0717_1", "running", METADATA)
    assert (found.profile, found.cores, found.ram_gib, found.zone) == ("bx2-2x8", 2, 8, "us-south-1")
    assert (found.interface_id, found.private_ipv4, found.spot, found.gone) == ("nic-1", "10.0.0.5", False, False)


def test_record_of_others() -> None:
    """IV-2, IV-3: one of others with a name like ours is never taken for ours."""
    for group in ("Default", "np_north_main", ""):
        assert record(resource_group={"id": "g", "name": group}).id == "0717_1"
    assert record(resource_group=None).metadata == {}


def test_addresses() -> None:
    """IV-6 (today): ``primary_ip``; 0.0.0.0 is none."""
    assert record(primary_network_interface={"id": "n", "primary_ipv4_address": "10.0.0.6"}).private_ipv4 == "10.0.0.6"
    assert record(primary_network_interface={"id": "n", "primary_ip": {"address": "0.0.0.0"}}).private_ipv4 is None
    assert record(primary_network_interface=None).interface_id == ""


def test_instance() -> None:
    """IV-6, IV-7: as the framework sees it; memory counts in GiB."""
    found = IbmInstance(record(), "us-south", "192.0.2.1")
    assert (found.cloud, found.region, found.az, found.external_id) == ("IBM", "us-south", "us-south-1", HOST)
    assert (found.public_ipv4, found.private_ipv4, found.interface_ip) == ("192.0.2.1", "10.0.0.5", "192.0.2.1")
    assert found.ready
    assert found.metadata == METADATA
    assert found.getQuotaInformation().get_resources() == {"instances": 1, "cores": 2, "ram": 8}
    assert IbmInstance(record(status="pending"), "us-south").interface_ip == "10.0.0.5"


def test_limits() -> None:
    """IV-7: only those of the configuration, in GiB."""
    found = limits_of(load(section(quota={"cores": 40, "ram": 160}))).quota["compute"]
    assert (found["cores"], found["ram"], found["instances"]) == (40, 160, math.inf)


def test_need() -> None:
    """IV-7: that of the first profile."""

    class Facts:
        def profile(self, name: str) -> IbmProfile:
            return {"a": IbmProfile("a", 4, 16), "b": IbmProfile("b", 8, 32)}[name]

    label = label_of(load(section({"profile": ["a", "b"]})))
    assert need_of(label, Facts()).get_resources() == {"instances": 1, "cores": 4, "ram": 16}  # type: ignore[arg-type]


def test_profile() -> None:
    fixed = {"name": "a", "vcpu_count": {"type": "fixed", "value": 2}, "memory": {"type": "fixed", "value": 8}}
    assert IbmProfile.of(fixed) == IbmProfile("a", 2, 8)
    chosen = {"name": "b", "vcpu_count": {"type": "range", "default": 4}, "memory": {"type": "dependent"}}
    assert IbmProfile.of(chosen) == IbmProfile("b", 4, 0)


def test_others() -> None:
    assert floating(1, HOST, "nic-1").metadata == METADATA
    assert (floating(1).free, floating(1, HOST, "nic-1").free) == (True, False)
    assert not floating(1)._replace(status="deleting").free
    assert (floating(1).unused, floating(1, HOST, "nic-1").unused) == (True, False)
    failed = floating(1)._replace(status="failed")
    assert (failed.free, failed.failed, failed.unused) == (False, True, True)
    assert not floating(1)._replace(status="pending").unused
    volume = IbmVolume.of({"id": "v", "name": HOST, "user_tags": ["a:b"], "volume_attachments": [{"id": "x"}]})
    assert volume == IbmVolume("v", HOST, "", ("a:b",), True)
    assert IbmVolume.of({"id": "v", "name": "n", "status": "pending_deletion"}).used
    assert not IbmVolume.of({"id": "v", "name": "n", "status": "available"}).used
    subnet = IbmSubnet.of({"id": "s", "name": "n", "vpc": {"id": "v"}, "zone": {"name": "z"}})
    assert subnet == IbmSubnet("s", "n", "v", "z", None)
    image = IbmImage.of({"id": "i", "name": "n", "status": "pending", "file": {"checksums": {"sha256": "ab"}}})
    assert (image.status, image.sha256) == ("pending", "ab")
