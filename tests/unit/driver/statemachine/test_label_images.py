# SPDX-License-Identifier: Apache-2.0
"""Images of labels: whether they are there, and since when not (W-4)."""

from __future__ import annotations

from concurrent.futures import Executor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.statemachine import provider
from nodepool.driver.statemachine.inventory import Patience
from nodepool.driver.statemachine.provider import LabelImages
from tests.support.manual_executor import ManualExecutor


class Site:
    """A provider with a label of a diskimage and one of a cloud image."""

    def __init__(self, executor: Executor) -> None:
        pool = SimpleNamespace(name="main", labels={})
        self.built = SimpleNamespace(name="built", pool=pool, diskimage=SimpleNamespace(name="disk"), cloud_image=None)
        self.listed = SimpleNamespace(
            name="listed", pool=pool, diskimage=None, cloud_image=SimpleNamespace(name="debian")
        )
        pool.labels = {"built": self.built, "listed": self.listed}
        self.uploads: set[str] = set()
        self.in_cloud = False
        self.log: list[str] = []
        log = SimpleNamespace(warning=lambda text, *args: self.log.append(text % args), debug=lambda *args: None)
        self.images = LabelImages(
            "cloud",
            {"main": pool},
            uploaded=self.uploads.__contains__,
            ask=lambda label: self.in_cloud,
            executor=executor,
            patience=Patience(0.0),
            log=cast(Any, log),
        )


def test_diskimage() -> None:
    """W-4: what is missing is told until it is there, without that anybody asks for the label again."""
    site = Site(ManualExecutor())
    assert not site.images.ready("built")
    assert not site.images.ready(site.built)
    missing = site.images.missing()["built"]
    assert missing.code == "image.missing"
    assert missing.text.startswith("there is no ready upload of image disk;")
    assert site.log[0] == f"provider cloud, label built: {missing.text}"
    assert len(site.log) == 1
    site.uploads.add("disk")
    assert site.images.missing() == {}
    assert site.images.ready("built")


def test_cloud_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """W-4: as long as nobody knows it counts as there."""
    monkeypatch.setattr(provider, "AGE_SECONDS", 0.0)
    executor = ManualExecutor(eager=False)
    site = Site(executor)
    assert site.images.ready("listed")
    assert site.images.missing() == {}
    executor.run()
    assert not site.images.ready("listed")
    assert "no usable image for cloud-image 'debian'" in site.images.missing()["listed"].text
    site.in_cloud = True
    assert not site.images.ready("listed")
    executor.run()
    assert site.images.missing() == {}


def test_label_of_no_pool() -> None:
    """W-4"""
    assert not Site(ManualExecutor()).images.ready("unknown")
