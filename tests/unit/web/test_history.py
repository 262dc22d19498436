# SPDX-License-Identifier: Apache-2.0
"""WP-48: the numbers that charts are drawn of."""

from __future__ import annotations

from nodepool.model import states
from nodepool.web.pages.overview import (
    FAILED,
    LAUNCHED,
    MOST_SAMPLES,
    OLDEST_SECONDS,
    WAITING,
    History,
    Sample,
    sample_of,
)
from tests.support.wait import wait_for
from tests.support.web_records import NOW, full
from tests.support.web_site import WebSite


def test_sample() -> None:
    """WP-48"""
    assert sample_of(full()) == Sample(
        NOW,
        {
            WAITING: 2,
            OLDEST_SECONDS: 412.0,
            LAUNCHED: 3,
            FAILED: 4,
            states.READY: 1,
            states.IN_USE: 1,
            states.BUILDING: 0,
            states.DELETING: 1,
            states.HOLD: 1,
        },
    )


def test_nothing_is_there() -> None:
    assert set(sample_of(WebSite().snapshots.snapshot).values.values()) == {0}


def test_old_samples_go() -> None:
    """WP-48"""
    history = History()
    for number in range(MOST_SAMPLES + 10):
        history.add(Sample(number, {}))
    assert [sample.at for sample in history.samples()] == list(range(10, MOST_SAMPLES + 10))


def test_samples_are_taken_while_the_server_runs() -> None:
    """WP-48"""
    site = WebSite(full())
    with site.client as client:
        wait_for("a sample", lambda: client.get("/charts.json").json()["times"] == [NOW])
