# SPDX-License-Identifier: Apache-2.0
"""Where records and locks are (reference/zookeeper 2), and what can be a name there."""

from __future__ import annotations

import pytest

from nodepool.zk import paths


def test_records_and_their_locks() -> None:
    assert paths.node("0000000001") == "/nodepool/nodes/0000000001"
    assert paths.node_lock("0000000001") == "/nodepool/nodes/0000000001/lock"
    assert paths.request("200-0000000001") == "/nodepool/requests/200-0000000001"
    assert paths.request_lock("200-0000000001") == "/nodepool/requests-lock/200-0000000001"
    assert paths.election("stats") == "/nodepool/elections/stats"


def test_mutex_of_a_provider_is_one_znode() -> None:
    assert paths.static_mutex("site/lab") == "/nodepool/elections/static-site_lab"


@pytest.mark.parametrize("name", ["0000000001", "a b", "ü", "..."])
def test_names(name: str) -> None:
    assert paths.is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x00", "a\n"])
def test_what_is_no_name(name: str) -> None:
    assert not paths.is_name(name)


@pytest.mark.parametrize(
    ("name", "sequence"),
    [
        ("0123abc__lock__0000000007", "0000000007"),
        ("0123abc__lock__-2147483648", "-2147483648"),
        ("0123abc__lock__7", None),
        ("0123abc0000000007", None),
        ("0123abc__lock__0000000007x", None),
    ],
)
def test_contenders_are_ordered_by_their_sequence(name: str, sequence: str | None) -> None:
    assert paths.contender_sequence(name) == sequence
