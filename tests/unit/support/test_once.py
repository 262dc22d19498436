# SPDX-License-Identifier: Apache-2.0
"""What is made once for a run of the tests."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.once import once_in_a_run


@pytest.fixture
def name() -> str:
    return f"once-{uuid.uuid4().hex}"


def test_made_once(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Also when several ask at once: each opens the file, as a process does."""
    calls: list[int] = []

    def make() -> dict[str, int]:
        calls.append(len(calls))
        return {"calls": len(calls)}

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: once_in_a_run(tmp_path_factory, name, make), range(8)))
    assert found == [{"calls": 1}] * 8
    assert calls == [0]


def test_tried_again_after_an_error(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    def fail() -> str:
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        once_in_a_run(tmp_path_factory, name, fail)
    assert once_in_a_run(tmp_path_factory, name, lambda: "made") == "made"
