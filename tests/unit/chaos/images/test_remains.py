# SPDX-License-Identifier: Apache-2.0
"""What is wrong with what is left after a run with images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.images.remains import Forgotten, Remains
from tests.support.stored_images import Build, Image, Upload

FORMATS = {"one": "qcow2", "two": "raw"}


def upload(build_id: str, provider: str, state: str = "ready", external_id: str | None = None) -> Upload:
    record = {"state": state, "state_time": 1.0, "external_id": external_id or f"{provider}-{build_id}"}
    return Upload("debian", build_id, provider, "0000000001", record, [])


def cloud_image(build_id: str, provider: str, **fields: Any) -> dict[str, Any]:
    keys = {"nodepool_build_id": build_id, "nodepool_upload_id": "0000000001"}
    sound = {"status": "active", "checksum": f"md5 {build_id} {FORMATS[provider]}"}
    return {"id": f"{provider}-{build_id}", "name": build_id, **sound, **keys, **fields}


@pytest.fixture
def found() -> Remains:
    """Two builds of one image, everywhere, and all well."""
    builds = [
        Build("debian", build_id, {"state": "ready", "state_time": 1.0}, [], [upload(build_id, p) for p in FORMATS])
        for build_id in ("a", "b")
    ]
    clouds = {provider: [cloud_image(build_id, provider) for build_id in ("a", "b")] for provider in FORMATS}
    disk = {("debian", "a"): [Path("debian-a.qcow2")], ("debian", "b"): [Path("debian-b.raw")]}
    built = {f"debian-{name}.{fmt}": f"md5 {name} {fmt}" for name in ("a", "b") for fmt in FORMATS.values()}
    return Remains({"debian": Image("debian", builds=builds)}, clouds, [disk], built)


def wrong(found: Remains) -> dict[str, list[str]]:
    return found.wrong(["debian"], FORMATS)


def test_all_well(found: Remains) -> None:
    assert wrong(found) == {}


def test_not_ready_in_one_cloud(found: Remains) -> None:
    for build in found.images["debian"].builds:
        build.uploads = [upload(build.build_id, "one")]
    assert wrong(found)["not ready"] == ["debian in two"]
    assert found.wrong(["debian", "noble"], FORMATS)["not ready"][1:] == ["noble in one", "noble in two"]


@pytest.mark.parametrize("state", ["building", "failed", "deleting"])
def test_build_in_another_state(found: Remains, state: str) -> None:
    found.images["debian"].builds[0].record = {"state": state}
    assert list(wrong(found)) == ["records that are not ready"]


def test_unreadable_upload(found: Remains) -> None:
    found.images["debian"].builds[0].uploads[0].record = None
    kinds = wrong(found)
    assert [text.rpartition(" ")[2] for text in kinds["records that are not ready"]] == ["unreadable"]
    assert len(kinds["images in a cloud without a record"]) == 1


@pytest.mark.parametrize(
    ("change", "text"), [({"checksum": "other"}, "checksum other"), ({"status": "queued"}, "is queued")]
)
def test_ready_record_of_a_bad_image(found: Remains, change: dict[str, str], text: str) -> None:
    found.clouds["one"][0].update(change)  # type: ignore[attr-defined]
    kinds = wrong(found)
    assert list(kinds) == ["records of ready uploads that are not true"]
    assert text in kinds["records of ready uploads that are not true"][0]


def test_ready_record_without_an_image(found: Remains) -> None:
    found.clouds["two"][:] = []  # type: ignore[index]
    assert "no image two-a" in wrong(found)["records of ready uploads that are not true"][0]


def test_image_without_a_record(found: Remains) -> None:
    found.clouds["two"].append(cloud_image("c", "two"))  # type: ignore[attr-defined]
    assert list(wrong(found)) == ["images in a cloud without a record"]
    assert found.aliens("two") == ["two-c"]
    found.forgotten = Forgotten(builds=["c"])
    assert wrong(found) == {}
    found.forgotten = Forgotten(uploads=[("two", "c", "0000000001")])
    assert wrong(found) == {}


def test_files_without_a_record(found: Remains) -> None:
    found.disks[0][("debian", "c")] = [Path("debian-c.raw")]  # type: ignore[index]
    assert wrong(found) == {"files without a record": ["debian-c.raw"]}


def test_locks_requests_and_processes(found: Remains) -> None:
    image = found.images["debian"]
    image.lockers, image.requested, found.processes = ["x__lock__0000000001"], True, ["12 sleep"]
    image.builds[0].uploads[0].lockers = ["y__lock__0000000001"]
    kinds = wrong(found)
    assert list(kinds) == ["locks", "requests", "processes"]
    assert len(kinds["locks"]) == 2


def test_more_than_two_are_too_many(found: Remains) -> None:
    image = found.images["debian"]
    image.builds.insert(0, Build("debian", "0", {"state": "ready", "state_time": 0.5}))
    assert list(wrong(found)) == ["more than is kept"]
    image.builds[0].uploads = [upload("0", "one", external_id="one-a")]
    assert wrong(found)["more than is kept"] == ["debian in one: 3 uploads"]
    del image.builds[1].uploads[0]
    assert "more than is kept" not in wrong(found)
