# SPDX-License-Identifier: Apache-2.0
"""What one line of ``nodepool check`` says."""

from __future__ import annotations

import pytest

from nodepool.driver import CheckResult
from nodepool.driver.framework.check_result import failure


@pytest.mark.parametrize(
    ("ok", "remedy", "status"),
    [(True, "", "ok"), (True, "do something", "warning"), (False, "", "failed"), (False, "do something", "failed")],
)
def test_status(ok: bool, remedy: str, status: str) -> None:
    assert CheckResult("label small", ok, "text", remedy).status == status


def test_failure() -> None:
    """What our errors say last is the remedy."""
    error = ValueError("the login is refused: a; b;\n check the password")
    assert failure("cloud", error) == CheckResult("cloud", False, "the login is refused: a; b", "check the password")
    assert failure("cloud", ValueError("broken")) == CheckResult("cloud", False, "broken")
    assert failure("cloud", KeyError()) == CheckResult("cloud", False, "KeyError")


def test_no_answer() -> None:
    """What to do when nobody answers is the same for all clouds."""
    found = failure("cloud", "listing failed: no answer from cloud:5000: connection refused")
    assert found.text.endswith("connection refused")
    assert found.remedy.startswith("correct the address, ")
