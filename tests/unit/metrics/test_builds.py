# SPDX-License-Identifier: Apache-2.0
"""Metrics of builds (reference/metrics 6, 7)."""

from __future__ import annotations

import pytest

from nodepool.metrics import reports
from nodepool.metrics.registry import Registry
from nodepool.metrics.statsd import statsd_names
from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageView


def view(**image: object) -> ImageView:
    return ImageView("debian", **image)  # type: ignore[arg-type]


BUILDING = BuildView("0123", ImageBuild.from_dict({"state": states.BUILDING, "state_time": 1.0}, "debian", "0123"))


@pytest.mark.parametrize(
    ("image", "pending"),
    [
        (view(), False),
        (view(build_requested=1.0), True),
        (view(build_requested=1.0, build_locked=True), True),
        (view(build_requested=1.0, build_locked=True, builds={"0123": BUILDING}), False),
        (view(build_requested=1.0, builds={"0123": BUILDING}), True),
    ],
)
def test_pending(image: ImageView, pending: bool) -> None:
    """reference/zookeeper 6.3: served while the lock is held and a building record is there."""
    assert reports.is_pending(image) is pending


def test_gauges() -> None:
    """Of images that are configured here, and requests for any; paused here or in ZooKeeper."""
    images = ImagesView(
        {
            "debian": view(build_requested=1.0),
            "fedora": ImageView("fedora", paused=True),
            "elsewhere": ImageView("elsewhere", build_requested=2.0),
        }
    )
    paused = {"debian": False, "fedora": False, "ubuntu": True, "arch": False}
    gauges = reports.build_gauges("b.example.com", 2, images, paused, ["arch"])
    sent = {name: value for series, value in gauges.items() for name in statsd_names(series)}
    assert sent == {
        "nodepool.image_build_requests": 2,
        "nodepool.image.debian.image_build_requests": 1,
        "nodepool.image.fedora.image_build_requests": 0,
        "nodepool.image.ubuntu.image_build_requests": 0,
        "nodepool.image.arch.image_build_requests": 0,
        "nodepool.image.elsewhere.image_build_requests": 1,
        "nodepool.builder.b.example.com.current_builds": 1,
        "nodepool.builder.b.example.com.build_workers": 2,
        "nodepool.builder.b.example.com.image.debian.build.state": 0,
        "nodepool.builder.b.example.com.image.fedora.build.state": 3,
        "nodepool.builder.b.example.com.image.ubuntu.build.state": 3,
        "nodepool.builder.b.example.com.image.arch.build.state": 1,
    }


def test_running_builds() -> None:
    gauges = reports.running_gauges("b.example.com", {"debian": (12.5, 80.0), "fedora": (0.0, None)})
    sent = {name: value for series, value in gauges.items() for name in statsd_names(series)}
    assert sent == {
        "nodepool.builder.b.example.com.image.debian.build.seconds": 12.5,
        "nodepool.builder.b.example.com.image.debian.build.estimate": 80.0,
        "nodepool.builder.b.example.com.image.fedora.build.seconds": 0.0,
    }


class Sent:
    """A sink."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def gauges(self, values: dict[object, float]) -> None:
        self.values.update({name: value for series, value in values.items() for name in statsd_names(series)})  # type: ignore[arg-type]

    def counted(self, series: object, amount: float) -> None:
        raise AssertionError

    def timed(self, series: object, seconds: float) -> None:
        self.values.update(dict.fromkeys(statsd_names(series), seconds))  # type: ignore[arg-type]


def test_end_of_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    monkeypatch.setattr(reports, "REGISTRY", Registry([sent]))  # type: ignore[list-item]
    reports.report_build_end("debian-12.1", 3, 61.5, 1000.25)
    reports.report_sizes("debian-12.1", {"qcow2": 4096})
    assert sent.values == {
        "nodepool.dib_image_build.debian-12.1.status.rc": 3,
        "nodepool.dib_image_build.debian-12.1.status.duration": 61.5,
        "nodepool.dib_image_build.debian-12.1.status.last_build": 1000,
        "nodepool.dib_image_build.debian-12.1.qcow2.size": 4096,
    }


def test_steps_of_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, with all of its time; what looks like a step and is none has no name of its own."""
    sent = Sent()
    monkeypatch.setattr(reports, "REGISTRY", Registry([sent]))  # type: ignore[list-item]
    steps = [("root", 5.0), ("converting", 1.0), ("finishing", 0.5), ("converting", 2.0), ("x1", 1.0), ("x2", 1.0)]
    reports.report_steps("debian-12.1", steps)
    assert sent.values == {
        "nodepool.dib_image_build.debian-12.1.step.root.duration": 5.0,
        "nodepool.dib_image_build.debian-12.1.step.converting.duration": 3.0,
        "nodepool.dib_image_build.debian-12.1.step.finishing.duration": 0.5,
        "nodepool.dib_image_build.debian-12.1.step.other.duration": 2.0,
    }
