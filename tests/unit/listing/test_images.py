# SPDX-License-Identifier: Apache-2.0
"""The tables of images (reference/commands 2)."""

from __future__ import annotations

import pytest

from nodepool.listing.images import (
    alien_image_table,
    build_name,
    build_request_state,
    build_table,
    image_status_table,
    nodes_by_build,
    split_build_name,
    upload_table,
)
from nodepool.listing.table import Table, render
from nodepool.model.image import BuildView
from nodepool.model.node import Node
from nodepool.model.status import BuilderStatus
from tests.support.image_records import build_view, image_view, images_view, upload

NOTHING_TOLD = BuilderStatus()


def headers(table: Table) -> list[tuple[str, str]]:
    return [(column.header, column.key) for column in table.columns]


def test_uploads() -> None:
    """reference/commands 2: eight columns; the age counts from the last change of state."""
    failed = upload("deb", "b1", "other", state="failed", external_id=None, external_name=None, state_time=None)
    images = images_view(image_view("deb", build_view("deb", "b1", [upload("deb", "b1", "lab"), failed])))
    table = upload_table(images, 161.0)
    assert headers(table) == [
        ("Build ID", "id"),
        ("Upload ID", "upload_id"),
        ("Provider", "provider"),
        ("Image", "image"),
        ("Provider Image Name", "external_name"),
        ("Provider Image ID", "external_id"),
        ("State", "state"),
        ("Age", "age"),
    ]
    assert table.rows == [
        ["b1", "0000000001", "lab", "deb", "deb-1", "ext", "ready", "00:00:01:01"],
        ["b1", "0000000001", "other", "deb", None, None, "failed", None],
    ]


def test_use_of_uploads() -> None:
    """Nodes are made from the ready upload with the greatest state time; one that was rolled back says so."""
    old = upload("deb", "b1", "lab", state_time=300.0, format="raw")
    new = upload("deb", "b2", "lab", rolled_back=True, state_time=200.0)
    images = images_view(image_view("deb", build_view("deb", "b1", [old]), build_view("deb", "b2", [new])))
    assert [row[8:10] for row in upload_table(images, 300.0, NOTHING_TOLD).rows] == [
        ["raw", "current"],
        [None, "rolled back"],
    ]


def test_progress_of_an_upload() -> None:
    """Columns behind --detail: numbers in JSON, units in a table."""
    running = upload("deb", "b1", "lab", state="uploading", format="qcow2", external_id=None, external_name=None)
    told = {"deb/b1/lab/0000000001": {"percent": 42.7, "bytes_per_second": 2 * 1024**2, "size": 3 * 1024**3}}
    images = images_view(image_view("deb", build_view("deb", "b1", [running])))
    table = upload_table(images, 100.0, BuilderStatus.of_records([{"uploads": told}]))
    assert table.rows[0][8:] == ["qcow2", None, 42.7, 2 * 1024**2, 3 * 1024**3]
    assert headers(table)[8:] == [
        *(("Format", "format"), ("Use", "use"), ("Progress", "progress"), ("Speed", "speed"), ("Size", "size"))
    ]
    assert [cell.strip() for cell in render(table).splitlines()[3].split("|")[11:14]] == ["42%", "2.0 MiB/s", "3.0 GiB"]


def test_what_has_ended_makes_no_progress() -> None:
    """Builders tell now and then, so that they still tell of what has just ended."""
    images = images_view(image_view("deb", build_view("deb", "b1", [upload("deb", "b1", "lab")], duration=2.0)))
    uploading = {"deb/b1/lab/0000000001": {"percent": 42.7, "bytes_per_second": 1024, "size": 4096}}
    told = BuilderStatus.of_records([{"uploads": uploading, "builds": {"deb/b1": {"step": "install", "estimate": 80}}}])
    assert upload_table(images, 100.0, told).rows[0][10:] == [None, None, None]
    assert build_table(images, 100.0, told).rows[0][6:9] == [None, 2.0, None]


def test_builds() -> None:
    """reference/commands 2: six columns; a build of a paused image is shown as paused, whatever its state."""
    images = images_view(
        image_view("deb-12", build_view("deb-12", "b1"), BuildView("bad", None)),
        image_view("fed", build_view("fed", "b2", state="building", formats="", state_time=None), paused=True),
    )
    table = build_table(images, 60.0)
    assert headers(table) == [
        *(("ID", "id"), ("Image", "image"), ("Builder", "builder"), ("Formats", "formats"), ("State", "state")),
        ("Age", "age"),
    ]
    assert table.rows == [
        ["deb-12-b1", "deb-12", "host", ["qcow2", "raw"], "ready", "00:00:00:10"],
        ["fed-b2", "fed", "host", [], "paused", None],
    ]


def test_details_of_builds() -> None:
    """A build that runs has its step, how long it has taken and may take; one that has ended, how long it took."""
    images = images_view(
        image_view(
            "deb",
            build_view("deb", "b1", duration=77.5, size=2048),
            build_view("deb", "b2", state="building", state_time=50.0),
            build_view("deb", "b3", duration="long"),
        )
    )
    status = BuilderStatus.of_records([{"builds": {"deb/b2": {"step": "install", "estimate": 80}}}])
    table = build_table(images, 62.0, status, {"b1": ["0000000007"]})
    assert headers(table)[6:] == [
        *(("Step", "step"), ("Duration", "duration"), ("Estimate", "estimate"), ("Size", "size"), ("Nodes", "nodes"))
    ]
    assert [row[6:] for row in table.rows] == [
        [None, 77.5, None, 2048, ["0000000007"]],
        ["install", 12.0, 80, None, []],
        [None, None, None, None, []],
    ]
    assert "00:00:12" in render(table)


def test_nodes_of_a_build() -> None:
    """A node has the path of the upload that it was made from; others have the name of a cloud image."""
    nodes = []
    for number, image_id in enumerate(
        ["/nodepool/images/deb/builds/b1/providers/lab/images/0000000001", "cloud-image", None]
    ):
        node = Node("small")
        node.id, node.image_id = str(number), image_id
        nodes.append(node)
    assert nodes_by_build(nodes) == {"b1": ["0"]}


def test_status() -> None:
    """reference/commands 2: pause, request and its age of each image that ZooKeeper knows."""
    images = images_view(
        image_view("deb", build_requested=40.0), image_view("fed", build_view("fed", "b", state="failed"), paused=True)
    )
    table = image_status_table(images, 100.0)
    assert headers(table) == [
        ("Image", "image"),
        ("Paused", "paused"),
        ("Build Request", "build_request"),
        ("Build Request Age", "build_request_age"),
    ]
    assert table.rows == [["deb", False, "pending", "00:00:01:00"], ["fed", True, None, None]]


@pytest.mark.parametrize(
    ("locked", "state", "expected"),
    [(True, "building", "building"), (False, "building", "pending"), (True, "ready", "pending")],
)
def test_request_is_served_while_the_lock_is_held_and_a_build_runs(locked: bool, state: str, expected: str) -> None:
    """reference/zookeeper 6.3"""
    image = image_view("deb", build_view("deb", "b", state=state), build_requested=1.0, build_locked=locked)
    assert build_request_state(image) == expected


@pytest.mark.parametrize(
    ("name", "parts"), [("deb-12-b1", ("deb-12", "b1")), ("deb", ("deb", "")), ("-b1", ("-b1", "")), ("", ("", ""))]
)
def test_name_of_a_build(name: str, parts: tuple[str, str]) -> None:
    """reference/commands 2: split at the last "-"; names of images may have some."""
    assert split_build_name(name) == parts
    if parts[1]:
        assert build_name(*parts) == name


def test_aliens() -> None:
    table = alien_image_table([("lab", "deb-1", "id")])
    assert [header for header, _ in headers(table)] == ["Provider", "Name", "Image ID"]
    assert table.rows == [["lab", "deb-1", "id"]]
