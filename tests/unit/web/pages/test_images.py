# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.model.image import NO_IMAGES
from nodepool.web.pages.providers import image_overview
from tests.support.web_records import NOW, full
from tests.support.web_site import WebSite


def test_table() -> None:
    assert image_overview(full().images, NOW).rows == [["debian", "paused", NOW - 5000, 1, 1, 1, 0, "building"]]
    assert image_overview(NO_IMAGES, NOW).rows == []


def test_step_of_a_build_and_progress_of_an_upload() -> None:
    """WP-47"""
    text = WebSite(full()).client.get("/images/debian").text
    for told in ("apt-get", "10 min", "41%", "976.6 KiB/s", "1.9 GiB"):
        assert f">{told}</td>" in text


def test_builds_lead_to_their_logs() -> None:
    """WP-47"""
    text = WebSite(full(), builder_url="https://{}:8006").client.get("/images/debian").text
    build = "debian-0123456789abcdef0123456789abcdef"
    assert f'<a href="https://b1:8006/logs/{build}">{build}</a>' in text
    assert "/logs/" not in WebSite(full()).client.get("/images/debian").text
