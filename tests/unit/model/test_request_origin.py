# SPDX-License-Identifier: Apache-2.0
"""For whom a request is (rule J-3)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.request import MAX_LABELS, MAX_NAME, NodeRequest, described, origin_of

ZUUL = {
    "build_set_uuid": "b",
    "tenant_name": "t1",
    "pipeline_name": "check",
    "job_uuid": "j",
    "job_name": "unit",
    "span_info": None,
}


def request(*labels: str, data: Any = None, tenant: str | None = None) -> NodeRequest:
    made = NodeRequest("200-1")
    made.node_types, made.requestor_data, made.tenant_name = list(labels), data, tenant
    return made


@pytest.mark.parametrize(
    ("data", "tenant", "expected"),
    [
        (ZUUL, "t1", {"job": "unit", "pipeline": "check", "tenant": "t1"}),
        ({"project_name": "org/x"}, "t2", {"project": "org/x", "tenant": "t2"}),
        (None, None, {}),
        ("text", None, {}),
        ({"job_name": 7, "tenant_name": ""}, None, {}),
        ({"job_name": "a\nb" + "x" * 200}, None, {"job": ("a b" + "x" * 200)[:MAX_NAME]}),
    ],
)
def test_origin(data: Any, tenant: str | None, expected: dict[str, str]) -> None:
    """J-3: records of other programs hold anything."""
    assert origin_of(request("a", data=data, tenant=tenant)) == expected


def test_described() -> None:
    """J-3."""
    assert described(request("gpu", "small", "gpu", data=ZUUL)) == (
        "2 x gpu, small; job unit, pipeline check, tenant t1"
    )
    assert described(request("small")) == "small"
    assert described(request(*map(str, range(MAX_LABELS + 3)))).endswith("9, 3 more labels")
