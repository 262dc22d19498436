# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.create`: an error names provider, label and remedy (issue: bad input)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudQuota
from nodepool.driver.openstack.create import error_status, refusal_of
from nodepool.driver.openstack.errors import refusal
from nodepool.exceptions import LaunchNodepoolException, LaunchStatusException, QuotaException
from nodepool.plan.launch import Failure, classify
from tests.unit.driver.openstack.support import StubCloud, label_section, only_label, view

MakeCloud = Callable[..., StubCloud]
WHERE = "provider cloud-a, label small"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("Invalid key_name provided.", "correct key-name ('mine')"),
        ("Security group nope not found for project 7.", "correct security-groups ['sg'] of pool main"),
        ("The requested availability zone is not available", "correct availability-zones of pool main: 'az1'"),
        ("Network 17 could not be found.", "correct networks ['internal']"),
        ("Multiple possible networks found, use a Network ID to be more specific.", "correct networks ['internal']"),
        ("It is not allowed to create an interface on external network 1", "correct networks"),
        ("Can not find requested image", "correct the image 'debian' of the label"),
        ("Flavor 7 could not be found.", "correct flavor-name ('m1') or min-ram (0)"),
        ("Flavor's disk is too small for requested image.", "correct flavor-name"),
        ("Volume size 1 is too small", "volume-size (50)"),
        ("Invalid input for field/attribute a. Value: 7. 7 is not of type 'string'", "correct instance-properties"),
        ("Metadata property value greater than 255 characters", "correct instance-properties"),
        ("Policy doesn't allow os_compute_api:servers:create to be performed.", "needs a role"),
        ("something else", "check flavor, image, networks, security groups, key-name and availability zone (az1)"),
    ],
)
def test_remedy(make_cloud: MakeCloud, said: str, wanted: str) -> None:
    """The setting is named, as it stands in the file."""
    settings = {"key-name": "mine", "networks": ["internal"]}
    label = only_label(make_cloud(label_section(**settings), pool={"security-groups": ["sg"]}).config)
    error = refusal_of(WHERE, label, "az1", refusal("Provider cloud-a: creating a server failed", said, 400))
    assert type(error) is LaunchNodepoolException
    assert str(error).startswith(f"{WHERE}: the cloud refuses the server: 400 {said}; ")
    assert wanted in str(error)


def test_quota(cloud: StubCloud) -> None:
    """O-3: full, not wrong."""
    said = "Quota exceeded for cores: Requested 4, but already used 18 of 20 cores"
    error = refusal_of(WHERE, only_label(cloud.config), None, refusal("Provider cloud-a: doing", said, 403))
    assert isinstance(error, CloudQuota)
    assert str(error) == f"{WHERE}: a quota of the cloud is used up: 403 {said}"


def test_user_data_are_not_shown(cloud: StubCloud) -> None:
    """Nova quotes what it refuses; user data may hold secrets."""
    said = "Invalid input for field/attribute user_data. Value: cGFzc3dvcmQ=. 'cGFzc3dvcmQ=' is too long"
    error = refusal_of(WHERE, only_label(cloud.config), None, refusal("Provider cloud-a: doing", said, 400))
    assert "cGFzc3" not in str(error)
    assert "field/attribute user_data. (The value is not shown.); correct userdata" in str(error)


@pytest.mark.parametrize(
    ("fault", "kind", "failure", "key"),
    [
        (
            "No valid host was found. There are not enough hosts",
            LaunchStatusException,
            Failure.CAPACITY,
            "error.status",
        ),
        ("Insufficient compute resources: free memory", LaunchStatusException, Failure.CAPACITY, "error.status"),
        ("the hypervisor failed", LaunchStatusException, Failure.INSTANCE, "error.status"),
        ("", LaunchStatusException, Failure.INSTANCE, "error.status"),
        (
            "VolumeSizeExceedsAvailableQuota: exceeds allowed gigabytes quota",
            QuotaException,
            Failure.QUOTA,
            "error.quota",
        ),
    ],
)
def test_error_status(fault: str, kind: Any, failure: Failure, key: str) -> None:
    """O-3, O-4: no room, a quota and a broken server are told apart; the metric stays that of reference/metrics 3."""
    error = error_status(WHERE, view(status="ERROR", fault={"message": fault, "code": 500}))
    assert isinstance(error, kind)
    assert classify(error) is failure
    assert error.statsd_key == key
    assert str(error).startswith(f"{WHERE}: server s1 went to ERROR: {fault or 'the cloud gives no reason'}")
