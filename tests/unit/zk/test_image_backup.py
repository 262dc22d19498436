# SPDX-License-Identifier: Apache-2.0
"""What may be imported (reference/zookeeper 6.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.zk.image_backup import Unusable, check, problem_of, sort_out

ROOT = "/nodepool/images/deb"
BUILD = f"{ROOT}/builds/b1"
UPLOAD = f"{BUILD}/providers/lab/images/0000000001"
RECORD = json.dumps({"state": "ready", "state_time": 1.0})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{ROOT}/pause", ""),
        (BUILD, RECORD),
        (UPLOAD, RECORD),
        # Of an older release, and of a newer one.
        (f"{ROOT}/builds/0000000001", json.dumps({"state": "building"})),
        (BUILD, json.dumps({"state": "failed", "state_time": 1, "formats": "raw", "of_tomorrow": {"a": [1]}})),
    ],
)
def test_good(path: str, text: str) -> None:
    assert problem_of(path, text) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/nodepool/nodes/1", RECORD),
        ("/nodepool/images", RECORD),
        (ROOT, ""),
        (f"{ROOT}/builds/lock", RECORD),
        (f"{ROOT}/request-build", ""),
        (f"{BUILD}/providers/lab/images/lock", RECORD),
        (f"{BUILD}/providers/lab/images/x", RECORD),
        (f"{BUILD}/providers/lab/images/\N{SUPERSCRIPT TWO}", RECORD),
        (f"{BUILD}/providers/lab/images/{'0' * 11}", RECORD),
        (f"{BUILD}/providers/lab/images/1", RECORD),
        (f"{BUILD}/providers/lab/images/0001000001", RECORD),
        (f"{ROOT}/builds/..", RECORD),
        ("/nodepool/images//builds/b1", RECORD),
        (f"{ROOT}/pause", "x"),
        (BUILD, ""),
        (BUILD, "[]"),
        (BUILD, '{"state": "lost"}'),
        (BUILD, {"state": "ready"}),
        (BUILD, None),
        (UPLOAD, '{"state": "building"}'),
    ],
)
def test_bad(path: str, text: Any) -> None:
    problem = problem_of(path, text)
    assert problem is not None
    assert path in problem or repr(path) in problem


def test_an_upload_needs_its_build() -> None:
    usable, problems = sort_out({UPLOAD: RECORD, f"{ROOT}/pause": ""})
    assert (list(usable), len(problems)) == ([f"{ROOT}/pause"], 1)
    assert sort_out({UPLOAD: RECORD, BUILD: ""})[0] == {}
    assert sort_out({UPLOAD: RECORD, BUILD: RECORD})[1] == []


def test_check_tells_the_first_problem_and_how_many_there_are() -> None:
    check({BUILD: RECORD})
    with pytest.raises(Unusable, match=f"{BUILD}: .*, and 1 more"):
        check({BUILD: "", "/x": RECORD})
