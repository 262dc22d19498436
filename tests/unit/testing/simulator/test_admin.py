# SPDX-License-Identifier: Apache-2.0
"""What ``/admin`` of all simulated clouds shares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.testing.simulator.admin import AdminApi
from nodepool.testing.simulator.application import SimulatedApplication
from nodepool.testing.simulator.core import SimulationCore
from nodepool.testing.simulator.messages import Request
from nodepool.testing.simulator.observer import NODE_KEY, Observer
from nodepool.testing.simulator.settings import SimulatorSettings


class TinyCloud:
    """Has boxes. ``open`` is what was done to them."""

    def __init__(self) -> None:
        self.core = SimulationCore(SimulatorSettings(), 0)
        self.observer = Observer()
        self.boxes: list[str] = []
        self.opened: list[str] = []

    def contents(self) -> dict[str, int]:
        return {"boxes": len(self.boxes)}

    def add_box(self, name: str, cores: int = 1) -> str:
        self.boxes.append(name)
        self.observer.present(name, {NODE_KEY: name}, cores, 1024)
        return name


@pytest.fixture
def cloud() -> TinyCloud:
    return TinyCloud()


@pytest.fixture
def admin(cloud: TinyCloud) -> AdminApi:
    made = AdminApi(cloud, SimulatedApplication(cloud.core), cloud.observer, "boxes")
    made.add_makers("name", {"box": cloud.add_box})
    made.add_deeds({"open": lambda body: cloud.opened.append(body["name"])})
    return made


def call(admin: AdminApi, method: str, path: str, **body: Any) -> tuple[int, Any]:
    answer = admin.handle(Request(method, f"/admin/{path}", {}, {}, json.dumps(body).encode()))
    return answer.status, json.loads(answer.body)


def test_things_are_made(admin: AdminApi, cloud: TinyCloud) -> None:
    assert call(admin, "POST", "add", kind="box", name="one", cores=2) == (200, {"name": "one"})
    assert cloud.boxes == ["one"]


@pytest.mark.parametrize("kind", ["bag", None])
def test_unknown_kind(admin: AdminApi, cloud: TinyCloud, kind: str | None) -> None:
    assert call(admin, "POST", "add", kind=kind, name="one") == (400, {"error": "kind must be one of box"})
    assert cloud.boxes == []


def test_wrong_arguments(admin: AdminApi) -> None:
    status, answer = call(admin, "POST", "add", kind="box", name="one", wheels=4)
    assert status == 400
    assert "wheels" in answer["error"]


def test_deeds_have_no_result(admin: AdminApi, cloud: TinyCloud) -> None:
    assert call(admin, "POST", "open", name="one") == (200, {})
    assert cloud.opened == ["one"]


def test_unknown_path(admin: AdminApi) -> None:
    status, answer = call(admin, "POST", "shut")
    assert status == 404
    assert "there is no POST /admin/shut; there are " in answer["error"]
    assert "POST /admin/open" in answer["error"]


def test_state_begins_anew(admin: AdminApi, cloud: TinyCloud) -> None:
    """`reset-counters` gives the state before it; what lives now counts on."""
    for name in ("one", "two"):
        call(admin, "POST", "add", kind="box", name=name, cores=4)
    cloud.observer.absent("two")
    _, before = call(admin, "POST", "reset-counters")
    assert (before["contents"], before["peak_boxes"], before["peak_cores"]) == ({"boxes": 2}, 2, 8)
    _, now = call(admin, "GET", "state")
    assert (now["peak_boxes"], now["peak_cores"], now["double_nodes"]) == (1, 4, [])
