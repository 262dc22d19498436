# SPDX-License-Identifier: Apache-2.0
"""How many processes run the tests."""

from __future__ import annotations

import pytest

from tests.support.workers import worker_count


@pytest.mark.parametrize(("cores", "processes"), [(1, 2), (2, 4), (4, 8), (64, 8)])
def test_worker_count(cores: int, processes: int) -> None:
    assert worker_count(cores) == processes
