# SPDX-License-Identifier: Apache-2.0
"""From the configuration to the body of the call that makes an instance, and to names, labels and quotas."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest

from nodepool.driver.gce.facts import core_quotas, disk_quotas, places_of
from nodepool.driver.gce.images import image_labels
from nodepool.driver.gce.instances import instance_body
from nodepool.driver.gce.types import LabelReader, MachineType, image_name, label_value, labels_of, request_id
from nodepool.driver.statemachine import CreationKey
from nodepool.driver.statemachine.instance import for_node
from tests.support.provider_sections import label_of
from tests.support.tables import driver_table
from tests.unit.driver.gce.support import METADATA, changed, load

# -- what is sent --

IMAGE = "projects/debian-cloud/global/images/debian-12"


@pytest.mark.parametrize(("changes", "expected"), driver_table("gce", "bodies"))
def test_bodies(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    """GC-2, GC-3, CM-1: what makes an instance. Google's own model of it knows all fields."""
    # It takes two seconds, and each process of pytest loads this file.
    from google.cloud.compute_v1.types.compute import Instance

    label = label_of(load(changed(changes)))
    body = instance_body("np0000000042", label, places_of(label)[0], IMAGE, METADATA)
    assert body == expected
    assert Instance.from_json(json.dumps(body), ignore_unknown_fields=False).name == "np0000000042"


# -- names, labels, quotas --


@pytest.mark.parametrize(
    ("change", "pattern", "fitting", "others"),
    [
        (
            label_value,
            r"[a-z0-9_-]{1,63}",
            ["north", "0000000042", "a_b-c", ""],
            ["GCE North", "eu.west", "x" * 64, "X" * 300, "Ä"],
        ),
        (
            image_name,
            r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?",
            ["debian-1761234567", "a"],
            ["Debian_12-1761234567", "12-debian-1", "x" * 80, "-", "debian-"],
        ),
    ],
)
def test_texts_that_fit(change: Any, pattern: str, fitting: list[str], others: list[str]) -> None:
    """CM-1: other texts are changed, and never equal those of another text."""
    assert [change(text) for text in fitting] == fitting
    for text in others:
        assert re.fullmatch(pattern, change(text))
        assert change(text) != change(f"{text}_" if change is image_name else f"{text}.")


def test_labels() -> None:
    """CM-1: what the labels say is the metadata, whatever the names of provider and pool."""
    written = for_node("0000000042", "Main Pool", "gce.north")
    reader = LabelReader("gce.north", ["Main Pool", "other"])
    assert reader.metadata({**labels_of(written), "team": "ci"}) == written
    assert reader.own_filter == f'labels.nodepool_provider_name="{label_value("gce.north")}"'
    other = LabelReader("gce-north", []).metadata(labels_of(written))
    assert other["nodepool_provider_name"] != "gce-north"
    given = {"Release": "Debian 12", "1st": "x", "nodepool_build_id": "b"}
    assert image_labels(given) == {"release": label_value("Debian 12"), "x1st": "x", "nodepool_build_id": "b"}


def test_request_id() -> None:
    """CM-8: a UUID that stays the same for provider, node, attempt and place."""
    key = CreationKey("north", "0000000042", 1)
    keys = [key, key._replace(attempt=2), key._replace(anew=1), key._replace(provider="south")]
    found = [request_id(one, "a") for one in keys] + [request_id(key, "b")]
    assert len(set(found)) == len(found)
    assert all(uuid.UUID(each).version == 4 for each in found)
    assert request_id(key, "a") == request_id(CreationKey("north", "0000000042", 1), "a")


@pytest.mark.parametrize(("name", "expected"), driver_table("gce", "quota_of_cores"))
def test_quota_of_cores(name: str, expected: set[str]) -> None:
    """GC-7: a series without a quota of its own counts against that of all regions only."""
    known = {"CPUS", "N2_CPUS", "CPUS_ALL_REGIONS"}
    for spot in (False, True):
        assert core_quotas(MachineType({"name": name, "guestCpus": 2}), spot, known) == dict.fromkeys(expected, 2)
    preemptible = core_quotas(MachineType({"name": name, "guestCpus": 2}), True, known | {"PREEMPTIBLE_CPUS"})
    assert preemptible == {"PREEMPTIBLE_CPUS": 2}


def test_quota_of_disks() -> None:
    """GC-7."""
    named = {"pd-standard": "DISKS_TOTAL_GB", "pd-ssd": "SSD_TOTAL_GB", "pd-balanced": "SSD_TOTAL_GB"}
    for kind, quota in {**named, "hyperdisk-balanced": "HDB_TOTAL_GB"}.items():
        assert disk_quotas(kind, 10) == {quota: 10}
    assert disk_quotas("something-new", 10) == {}
