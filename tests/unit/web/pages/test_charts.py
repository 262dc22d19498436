# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

from nodepool.web.pages.overview import CHARTS, OLDEST_SECONDS, WAITING, Sample, charts_of, sample_of
from tests.support.web_records import full
from tests.support.web_site import WebSite


def test_curves_have_a_value_for_each_time() -> None:
    """WP-48"""
    told = charts_of([Sample(100.4, {WAITING: 1, OLDEST_SECONDS: 1.23456}), sample_of(full())])
    assert told["times"][0] == 100
    curves = {
        (chart["title"], curve["label"]): curve["values"] for chart in told["charts"] for curve in chart["curves"]
    }
    assert curves["Requests that wait", "waiting"] == [1, 2]
    assert curves["Oldest request, in seconds", "age"] == [1.235, 412]
    assert curves["Nodes", "hold"] == [0, 1]
    assert curves["Launches within 15 minutes", "failed"] == [0, 4]


def test_each_curve_has_a_key_of_a_sample() -> None:
    keys = {key for _, curves in CHARTS for _, key in curves}
    assert keys == set(sample_of(full()).values)


def test_place_for_each_chart() -> None:
    """WP-48"""
    text = WebSite().client.get("/").text
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == [title for title, _ in CHARTS]


def test_no_samples_yet() -> None:
    told = WebSite().client.get("/charts.json").json()
    assert told["times"] == []
    assert len(told["charts"]) == len(CHARTS)
