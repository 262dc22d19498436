# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` says of a simulated subscription."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.driver.azure.support import Here, at_simulator, section


def check(here: Here) -> dict[str, tuple[str, str]]:
    return {found.subject: (found.status, f"{found.text}; {found.remedy}") for found in here.adapter.preflight()}


def test_check(here: Here) -> None:
    """reference/commands: a line for what is there."""
    assert {subject: status for subject, (status, _) in check(here).items()} == {
        "resource group nodepool": "ok",
        "network": "ok",
        "label small of pool main": "ok",
        "quota": "warning",
    }


@pytest.mark.parametrize(
    ("data", "settings", "subject", "told"),
    [
        (section(), {"client_secret": "other"}, "resource group nodepool", "correct the file of auth-path"),
        (section(resource_group="none"), {}, "resource group none", "correct resource-group"),
        (section(network="none"), {}, "network", "NotFound"),
        (section(pool={"availability-zones": ["7"]}), {}, "label small of pool main", "not in zone 7"),
        (
            section({"hardware-profile": {"vm-size": "Standard_X"}}),
            {},
            "label small of pool main",
            "correct hardware-profile.vm-size",
        ),
        (
            section(cloud_images=[{"name": "debian", "username": "z", "image-filter": {"name": "none"}}]),
            {},
            "label small of pool main",
            "correct image-filter",
        ),
        (
            # Behind the host it would name another one.
            section(cloud_images=[{"name": "debian", "username": "z", "image-id": ".example.org/debian"}]),
            {},
            "label small of pool main",
            "'.example.org/debian' is no id of Azure; begin it with /subscriptions/",
        ),
        (section(), {"denied": ["skus.*"]}, "label small of pool main", "give the credentials the role"),
    ],
)
def test_check_finds(tmp_path: Path, data: dict[str, Any], settings: dict[str, Any], subject: str, told: str) -> None:
    """reference/commands: what is missing, and what to do."""
    with at_simulator(tmp_path, data) as here:
        here.simulator.change(**settings)
        status, text = check(here)[subject]
        assert status == "failed"
        assert told in text
