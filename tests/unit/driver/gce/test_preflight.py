# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` says of a simulated project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import LoginRefused
from simulators.gce import GceErrorRule
from simulators.gce.cloud import BUCKET
from tests.unit.driver.gce.sections import PROJECT, ZONES, section
from tests.unit.driver.gce.support import Here, at_simulator


def told(here: Here) -> dict[str, str]:
    return {result.subject: f"{result.status}: {result.text}; {result.remedy}" for result in here.adapter.preflight()}


def test_all_is_in_order(tmp_path: Path) -> None:
    with at_simulator(tmp_path, section(pool={"max-servers": 5, "subnetwork": "default"}, zone=ZONES)) as here:
        found = told(here)
        assert all(text.startswith("ok") for text in found.values()), found
        subjects = [f"project {PROJECT}", *(f"zone {zone}" for zone in ZONES), "pool main", "label small of pool main"]
        assert list(found) == [*subjects, "quota", f"bucket {BUCKET}"]
        assert here.calls("instances.insert") == 0


@pytest.mark.parametrize(
    ("data", "subject", "text"),
    [
        (section(zone="europe-west1-b"), "zone europe-west1-b", "not in region us-central1; correct zone or region"),
        (section(zone="us-central1-x"), "zone us-central1-x", "correct zone"),
        (section(network="nothing"), "pool main", "correct network"),
        (section(subnetwork="nothing"), "pool main", "correct subnetwork"),
        (section({"instance-type": "n9-mega"}), "label small of pool main", "no machine type 'n9-mega'"),
        (section({"volume-size": 1}), "label small of pool main", "GiB, volume-size is 1; raise volume-size"),
        (
            section(cloud_images=[{"name": "debian", "image-id": "global/images/nothing"}]),
            "label small of pool main",
            "correct cloud image debian",
        ),
    ],
)
def test_what_is_missing(tmp_path: Path, data: dict[str, Any], subject: str, text: str) -> None:
    with at_simulator(tmp_path, data) as here:
        found = told(here)
        assert found[subject].startswith("failed"), found
        assert text in found[subject]


def test_no_bucket(tmp_path: Path) -> None:
    with at_simulator(tmp_path, section(), bucket="nothing") as here:
        assert told(here)["bucket nothing"].endswith("correct object-storage.bucket-name")


def test_quota_that_is_too_small(tmp_path: Path) -> None:
    with at_simulator(tmp_path, section(pool={"max-servers": 5}), quotas={"N2_CPUS": 4}) as here:
        assert "warning: quota N2_CPUS is 4: it allows 2 nodes of label small" in told(here)["quota"]


def test_wrong_project(tmp_path: Path) -> None:
    with at_simulator(tmp_path, section(project="nothing")) as here:
        assert told(here)["project nothing"].startswith("failed")


def test_wrong_credentials(here: Here) -> None:
    here.simulator.change(errors=[GceErrorRule(operation="*", kind="401")])
    with pytest.raises(LoginRefused):
        here.launch()
