# SPDX-License-Identifier: Apache-2.0
"""What becomes of a check of a provider whose cloud refuses to answer."""

from __future__ import annotations

import pytest

from nodepool.driver import CheckResult
from nodepool.driver.framework.cloud_checks import CloudChecks
from nodepool.exceptions import LaunchStatusException, RuntimeConfigurationException

FOUND = CheckResult("pool main", True, "2 zones")


def zones(number: int, fails_with: Exception | None = None) -> list[CheckResult]:
    if fails_with is not None:
        raise fails_with
    return [CheckResult("pool main", True, f"{number} zones")]


def test_results() -> None:
    assert CloudChecks("north").results("pool main", zones, 2) == [FOUND]


@pytest.mark.parametrize("head", ["Provider north: ", "provider north, ", ""])
@pytest.mark.parametrize("kind", [LaunchStatusException, RuntimeConfigurationException])
def test_refused(kind: type[Exception], head: str) -> None:
    """The table names the provider: the text does not name it again. The remedy is apart."""
    error = kind(f"{head}listing the zones failed: status 403; change the role")
    expected = CheckResult("pool main", False, "listing the zones failed: status 403", "change the role")
    assert CloudChecks("north").results("pool main", zones, 2, fails_with=error) == [expected]


def test_errors_of_ours() -> None:
    """A mistake of the driver is none of the cloud."""
    with pytest.raises(KeyError):
        CloudChecks("north").results("pool main", zones, 2, fails_with=KeyError("zone"))
