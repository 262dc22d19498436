# SPDX-License-Identifier: Apache-2.0
"""Provider sections of the drivers whose tables have the same form (reference/configuration)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws import AwsDriver
from nodepool.driver.azure import AzureDriver
from nodepool.driver.gce import GceDriver
from nodepool.driver.ibmvpc import IbmVpcDriver
from tests.support.provider_sections import DriverSections, has, parts, problems_of_section
from tests.support.tables import driver_table

SECTIONS = {
    "aws": DriverSections(AwsDriver(), "aws"),
    "azure": DriverSections(AzureDriver(), "azure"),
    "gce": DriverSections(GceDriver(), "gce"),
    "ibmvpc": DriverSections(IbmVpcDriver(), "ibmvpc"),
}
every_driver = pytest.mark.parametrize("driver", SECTIONS)


@every_driver
def test_every_key(driver: str) -> None:
    """All keys are read; what a pool does not say is the provider's. 6: a section that has not changed is equal."""
    everything, load = driver_table(driver, "everything"), SECTIONS[driver].load
    found = parts(load(everything))
    for name, expected in driver_table(driver, "loaded").items():
        has(found[name], **expected)
    for label, image in driver_table(driver, "images_of_labels").items():
        assert found[image] in (found[label].diskimage, found[label].cloud_image)
    changed = copy.deepcopy(everything)
    changed["cloud-images"][0]["username"] = "other"
    assert load(copy.deepcopy(everything)) == load(everything) != load(changed)


@every_driver
def test_defaults(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Nodepool 11.0.0, but for ``rate`` of IBM, whose answers set the pace. AZ-1: a variable has a path."""
    monkeypatch.setenv("AZURE_AUTH_LOCATION", "/from/environment")
    sections = SECTIONS[driver]
    config = sections.load(sections.section(rate=None))
    for name, expected in driver_table(driver, "defaults").items():
        has(parts(config)[name], **expected)


@pytest.mark.parametrize(
    ("driver", "data", "problem"),
    [(driver, *row) for driver in ("azure", "gce", "ibmvpc") for row in driver_table(driver, "checked")],
)
def test_checked(tmp_path: Path, driver: str, data: dict[str, Any], problem: str | None) -> None:
    """Each problem with file, line, and what is allowed."""
    problems = problems_of_section(tmp_path, SECTIONS[driver].changed(data))
    assert any(problem in found for found in problems) if problem else not problems, problems


@every_driver
def test_private_key_that_is_not_here(driver: str) -> None:
    """A configuration may be checked on another machine: ``config-validate`` warns."""
    section = SECTIONS[driver].section(label={"ready-check": "true", "ready-check-key": "/none"})
    for image in section["cloud-images"]:
        image["username"] = "zuul"
    (problem,) = SECTIONS[driver].load(section).localProblems()
    assert problem == ("pools", "label small: ready-check-key /none cannot be read; its launches fail")
