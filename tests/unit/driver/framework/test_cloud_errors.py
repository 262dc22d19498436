# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.cloud_errors`."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, LoginRefused, nothing_sent


def test_nothing_sent() -> None:
    """A call that only reads has made nothing, whoever else hears of its error."""
    shared = CloudAway("no answer", code="E")
    with pytest.raises(CloudAway, match="no answer") as caught, nothing_sent():
        raise shared
    assert (caught.value.maybe_done, caught.value.code, shared.maybe_done) == (False, "E", True)


@pytest.mark.parametrize("error", [LoginRefused("no"), CloudRefused("no"), OSError("no")])
def test_others_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, nothing_sent():
        raise error
    assert caught.value is error
