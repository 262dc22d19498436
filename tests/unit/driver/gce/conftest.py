# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of Google."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.driver.gce.support import Here, at_simulator, section


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with at_simulator(tmp_path, section()) as made:
        yield made
