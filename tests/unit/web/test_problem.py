# SPDX-License-Identifier: Apache-2.0
"""Errors of the API."""

from __future__ import annotations

import json

from nodepool.web.answers import MAX_DETAIL, problem_response


def test_as_rfc_9457_says() -> None:
    """WP-25"""
    answer = problem_response(404, "There is no node 'x'.", {"X": "1"})
    assert (answer.status_code, answer.media_type, answer.headers["x"]) == (404, "application/problem+json", "1")
    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(bytes(answer.body)) == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "There is no node 'x'.",
    }


def test_is_bounded() -> None:
    """WP-25: it names what a client has sent."""
    assert len(json.loads(bytes(problem_response(400, "x" * 9999).body))["detail"]) == MAX_DETAIL
