# SPDX-License-Identifier: Apache-2.0
"""``nodepool check``: cause and remedy of each thing that is missing; nothing is asked that changes something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CheckResult
from tests.support.tables import driver_table
from tests.unit.driver.aws.support import LIMITS, ImageRig, Rig, error, quotas, rows, section

#: All that the section names.
THERE: dict[str, Any] = driver_table("aws", "there")
POLICY = "allow it in the IAM policy of the credentials"


def rig_of(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **answers: Any) -> Rig:
    wanted = {"subnet-id": "subnet-1", "security-group-id": "sg-1", "max-servers": 10, **(pool or {})}
    return Rig(section(label, pool=wanted), **{**THERE, **answers})


def results(rig: Rig) -> list[CheckResult]:
    return list(rig.adapter.preflight())


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("AuthFailure", "check the credentials, and the clock of this machine"), ("UnauthorizedOperation", POLICY)],
)
def test_credentials(tmp_path: Path, code: str, remedy: str) -> None:
    """AW-1: without them nothing else is asked, of images neither."""
    rig = ImageRig(tmp_path)
    rig.region.answers |= {"describe_availability_zones": error(code)}
    (found,) = results(rig)
    assert (found.subject, found.status, found.remedy) == ("region eu-north-1", "failed", remedy)
    assert f"DescribeAvailabilityZones failed: {code}" in found.text
    assert "Provider" not in found.text
    assert len(rig.region.calls) == 1


@pytest.mark.parametrize(("pool", "answers", "text"), rows("missing"))
def test_what_is_missing(pool: dict[str, Any] | None, answers: dict[str, Any], text: str) -> None:
    """AW-16: cause and remedy; the rest is looked at all the same; None = it is something of the label."""
    found = results(rig_of(None, pool, **answers))
    (bad,) = [result for result in found if result.status != "ok"]
    words, _, remedy = text.partition(" -> ")
    assert (bad.subject, bad.status) == ("label small of pool main" if pool is None else "pool main", "failed")
    assert words in bad.text
    assert bad.remedy.startswith(remedy)
    assert found[-1].subject == "quota"


@pytest.mark.parametrize(("answer", "status", "words", "remedy"), rows("checked_limits"))
def test_limits(answer: Any, status: str, words: str, remedy: str | None) -> None:
    """AW-14: with what ``max-servers`` allows; a label that has no place at all fails."""
    answered = quotas((*LIMITS[0][:2], answer)) if isinstance(answer, float) else answer
    found = results(rig_of(list_service_quotas=answered))[-1]
    assert (found.subject, found.status) == ("quota", status)
    assert words in found.text
    assert remedy in (None, found.remedy)


@pytest.mark.parametrize(("methods", "more", "answers", "remedy", "calls"), rows("checked_images"))
def test_images(
    tmp_path: Path, methods: Any, more: dict[str, Any], answers: dict[str, Any], remedy: str | None, calls: list[str]
) -> None:
    """AW-17, AW-18: a line for each image that is uploaded: the bucket, and what the credentials are allowed."""
    images = [{"name": f"image-{number}", "import-method": method} for number, method in enumerate(methods)]
    rig = ImageRig(tmp_path, None, **{"diskimages": [*images, {"name": "old", "pause": True}], **more})
    rig.region.answers |= {**THERE, **answers}
    found = [result for result in results(rig) if result.subject.startswith("diskimage")]
    assert [result.subject for result in found] == [f"diskimage image-{number}" for number in range(len(methods))]
    assert {result.status for result in found} == {"ok" if remedy == "" else "failed"}
    assert all(remedy in (None, result.remedy) and "Provider" not in result.text for result in found)
    assert [name for name, _ in rig.region.calls if "import" in name or "objects" in name] == calls
