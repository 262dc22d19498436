# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud that is not well."""

from __future__ import annotations

import pytest

from nodepool.testing.simulator.faults import fault_answer
from nodepool.testing.simulator.messages import Answer, ApiError, json_answer
from nodepool.testing.simulator.rules import ErrorRule


def shaped(error: ApiError) -> Answer:
    answer = json_answer({"text": error.message}, error.status)
    answer.headers |= error.headers
    return answer


def test_statuses_have_the_shape_of_the_service() -> None:
    answer = fault_answer(ErrorRule(kind="429", retry_after=3), shaped, {429: "slowly"})
    assert (answer.status, answer.body, answer.headers) == (429, b'{"text": "slowly"}', {"Retry-After": "3"})
    assert b"Simulated error" in fault_answer(ErrorRule(kind="500"), shaped).body


def test_lost_answers() -> None:
    assert fault_answer(ErrorRule(kind="drop"), shaped).silence == 0.0
    assert fault_answer(ErrorRule(kind="hang", seconds=7), shaped).silence == 7


@pytest.mark.parametrize(
    ("kind", "status"), [("html", 502), ("portal", 200), ("garbage", 200), ("odd", 200), ("truncated", 200)]
)
def test_what_is_no_answer_of_the_service(kind: str, status: int) -> None:
    answer = fault_answer(ErrorRule(kind=kind), shaped)
    assert (answer.status, answer.cut) == (status, kind == "truncated")
    assert len(fault_answer(ErrorRule(kind="huge", size=1000), shaped).body) > 1000
