# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder`` as a process: builds, signals, deaths (reference/commands 3 and 4, rules B and P)."""

from __future__ import annotations

import hashlib
import json
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from nodepool.builder import dib
from nodepool.driver.fake.cloud import USABLE, FakeImage
from simulators.example_cloud import CLOUD_IMAGE, ExampleCloud
from tests.support.fake_builder import IMAGE, FakeBuilder
from tests.support.image_place import FORMATS, ImagePlace
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer

Make = Callable[..., FakeBuilder]


@pytest.fixture
def make(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[Make]:
    """Makes builders of the test's chroot, each with a directory of its own unless it is said which."""
    made: list[FakeBuilder] = []

    def builder(*options: str, name: str = "", **settings: Any) -> FakeBuilder:
        directory = tmp_path / (name or f"builder{len(made)}")
        made.append(FakeBuilder(directory, zookeeper, chroot, znodes, *options, **settings))
        return made[-1]

    yield builder
    for process in made:
        process.end()


def begun(make: Make, *options: str, **settings: Any) -> FakeBuilder:
    """Makes one, and starts it."""
    builder = make(*options, **settings)
    builder.start()
    return builder


def slow(seconds: float = 300) -> dict[str, Any]:
    """Settings of an image whose build takes long."""
    return {"formats": ["raw"], "env-vars": {"FAKE_BUILD_SECONDS": str(seconds)}}


def session_of(builder: FakeBuilder, build_id: str, image: str = IMAGE) -> int:
    """Session of the processes of a build that runs."""

    note = builder.images_dir / ".builds" / f"{image}-{build_id}.json"

    def look() -> int:
        try:
            return int(json.loads(note.read_text())["session"])
        except (FileNotFoundError, ValueError):
            return 0

    return wait_for("the build has begun", look)


def test_image_is_built(make: Make, znodes: PoolZnodes) -> None:
    """B-3, B-7: a record, files with checksums, a log; nothing temporary is left. It is registered while it runs."""
    builder = begun(make, images={IMAGE: {"formats": ["qcow2", "raw"], "python-path": "/usr/bin/python3"}})
    (build_id,) = builder.wait_state("ready")
    build = builder.builds()[build_id]
    assert build["formats"] == "qcow2,raw"
    assert (build["username"], build["python_path"], build["shell_type"]) == ("zuul", "/usr/bin/python3", None)
    assert build["builder"]
    assert build["builder_id"] == (builder.images_dir / "builder_id.txt").read_text()
    assert build["duration"] >= 0
    assert build["size"] > 0
    assert uuid.UUID(hex=build_id)
    name = f"{IMAGE}-{build_id}"
    images = {f"{name}.{kind}{sum}" for kind in ("qcow2", "raw") for sum in ("", ".md5", ".sha256")}
    assert builder.files() == {*images, f"{name}.d", "builder_id.txt", ".builds"}
    assert builder.log_of(build_id).endswith("Exit code: 0\n")
    assert list(builder.temporary.iterdir()) == []
    assert list((builder.images_dir / ".builds").iterdir()) == []
    root = "/nodepool/components/builder"
    (name,) = znodes.children(root)
    entry = znodes.read(f"{root}/{name}") or {}
    assert (entry["kind"], entry["state"], entry["model_api"]) == ("builder", "running", 0)
    assert builder.stop(signal.SIGINT, seconds=60) == 0
    assert znodes.children(root) == []


def test_serves_its_logs(make: Make) -> None:
    """WP-49"""
    (port,) = free_ports(1)
    web = {"webapp": {"builder-port": port, "listen_address": "127.0.0.1"}}
    builder = begun(make, images={IMAGE: {"formats": ["raw"]}, "slow": slow()}, extra=web)
    (build_id,) = builder.wait_state("ready")
    (running,) = builder.wait_state("building", image="slow")
    site = f"http://127.0.0.1:{port}"
    wait_for("it listens", lambda: f"Web server at {site}/" in builder.log_text())
    assert f"{IMAGE}-{build_id}" in httpx.get(f"{site}/").text
    assert httpx.get(f"{site}/logs/{IMAGE}-{build_id}").text == builder.log_of(build_id)
    assert httpx.get(f"{site}/health/ready").text == "OK"
    assert 'nodepool_build_info{kind="builder"' in httpx.get(f"{site}/metrics").text
    session_of(builder, running, "slow")
    with httpx.stream("GET", f"{site}/logs/slow-{running}", timeout=60) as answer:
        assert next(answer.iter_lines())
        # It ends with the builder, not only with the build.
        assert builder.stop(signal.SIGTERM, seconds=60) == 0


def test_broken_configuration_changes_nothing(make: Make) -> None:
    """B-16, B-4: builds go on with the old one, also on request; a new image is built when it is mended."""
    builder = begun(make)
    builder.wait_state("ready")
    builder.config_path.write_text("{", encoding="utf-8")
    wait_for("it is refused", lambda: "The configuration is refused" in builder.log_text())
    builder.request()
    builder.wait_state("ready", count=2)
    wait_for("the request is served", lambda: not builder.requested())
    builder.configure({IMAGE: {"formats": ["raw"]}, "other": {"formats": ["raw"]}})
    builder.wait_state("ready", image="other")


def test_failed_build(make: Make) -> None:
    """B-8, B-13: failed, and its files are gone; the next attempt waits, but not after a request."""
    failing = {"formats": ["raw"], "env-vars": {"FAKE_BUILD_STATUS": "3"}}
    builder = begun(make, images={IMAGE: failing})
    (first,) = builder.wait_failed()
    assert builder.log_of(first).endswith("Exit code: 3\n")
    builder.request()
    builder.wait_failed(count=2)
    wait_for("no file of it", lambda: builder.files() == {"builder_id.txt", ".builds"})
    builder.configure({IMAGE: {"formats": ["raw"]}})
    builder.wait_state("ready")
    wait_for("the request is served", lambda: not builder.requested())


def test_build_takes_too_long(make: Make) -> None:
    """B-8: build-timeout."""
    builder = begun(make, images={IMAGE: {**slow(), "build-timeout": 1}})
    (build_id,) = builder.wait_failed()
    assert "Exit code" not in builder.log_of(build_id)


def test_sigterm_ends_the_build(make: Make) -> None:
    """Its processes end, the record says failed, nothing is left; exit status 0."""
    builder = begun(make, images={IMAGE: slow()})
    (build_id,) = builder.wait_state("building")
    session = session_of(builder, build_id)
    builder.send_signal(signal.SIGTERM)
    assert builder.wait(60) == 0
    assert dib.members(session) == []
    assert builder.builds()[build_id]["state"] == "failed"
    assert builder.files() == {"builder_id.txt", ".builds"}
    assert list(builder.temporary.iterdir()) == []
    assert "The build was ended: the builder stops" in builder.log_of(build_id)


def test_sigint_waits_for_the_build(make: Make) -> None:
    """A build that runs is completed, and no other begins."""
    builder = begun(make, images={IMAGE: slow(3), "other": slow(3)})
    (build_id,) = builder.wait_state("building")
    builder.send_signal(signal.SIGINT)
    assert builder.wait(60) == 0
    assert builder.builds()[build_id]["state"] == "ready"
    assert builder.builds("other") == {}


@pytest.mark.parametrize("again", [None, signal.SIGINT, signal.SIGTERM])
def test_sigint_waits_not_for_ever(make: Make, again: signal.Signals | None) -> None:
    """--stop-timeout; a second signal ends the build in order, too."""
    builder = begun(make, *(["--stop-timeout", "1"] if again is None else []), images={IMAGE: slow()})
    (build_id,) = builder.wait_state("building")
    session_of(builder, build_id)
    builder.send_signal(signal.SIGINT)
    if again is not None:
        wait_for("it stops", lambda: "Stopping after SIGINT" in builder.log_text())
        builder.send_signal(again)
    assert builder.wait(60) == 0
    assert builder.builds()[build_id]["state"] == "failed"


def test_builder_that_dies(make: Make) -> None:
    """Its build ends with it or at its next start, with all temporary files; the image is built again."""
    builder = begun(make, images={IMAGE: slow()}, session_seconds=2)
    (build_id,) = builder.wait_state("building")
    session = session_of(builder, build_id)
    assert dib.members(session)
    builder.kill()
    again = make(name=builder.config_path.parent.name, images={IMAGE: {"formats": ["raw"]}}, session_seconds=2)
    again.start()
    again.wait_state("ready")
    assert dib.members(session) == []
    assert list(again.temporary.iterdir()) == []
    assert list((again.images_dir / ".builds").iterdir()) == []


@pytest.mark.parametrize(("key", "value"), [("images-dir", None), ("zookeeper-servers", [])])
def test_refusal(make: Make, key: str, value: object) -> None:
    """B-12: neither images-dir nor ZooKeeper, no builder."""
    builder = make(extra={key: value})
    text = builder.config_path.read_text(encoding="utf-8").replace("images-dir: null\n", "")
    builder.config_path.write_text(text, encoding="utf-8")
    builder.start()
    assert builder.wait(30) == 1
    assert key in builder.log_text()


def test_images_dir_that_is_in_use(make: Make) -> None:
    """B-10: a second builder ends at once, with one line; the first one goes on. After its end there is room."""
    first = make(name="shared")
    first.start()
    first.wait_ready()
    second = make(name="shared")
    second.log_path = second.log_path.with_name("second.log")
    second.start()
    assert second.wait(30) == 1
    assert "another nodepool-builder that runs uses it" in second.log_text()
    assert first.stop(seconds=60) == 0


# -- uploads to a cloud: deaths, and what is left (rules U, R)


@pytest.fixture
def cloud() -> Iterator[ExampleCloud]:
    with ExampleCloud() as cloud:
        yield cloud


def provider(cloud: ExampleCloud, **section: Any) -> dict[str, Any]:
    return {
        "name": "cloud",
        "driver": "example",
        "url": cloud.url,
        "rate": 0,
        "diskimages": [{"name": IMAGE}],
        "pools": [],
        **section,
    }


def uploading(make: Make, cloud: ExampleCloud, name: str = "builder") -> FakeBuilder:
    """Starts a builder that uploads to the cloud."""
    extra = {"providers": [provider(cloud)]}
    return begun(make, name=name, images={IMAGE: {"rebuild-age": 86400}}, extra=extra, session_seconds=3)


def ours(cloud: ExampleCloud) -> list[FakeImage]:
    return [image for image in cloud.images.images() if image.name != CLOUD_IMAGE]


def uploaded(builder: FakeBuilder, cloud: ExampleCloud) -> FakeImage:
    """Wait until there is one upload, ready, with its image and no other in the cloud."""

    def look() -> FakeImage:
        assert builder.running, builder.log_text()
        records, images = builder.uploads("cloud"), ours(cloud)
        assert len(records) == len(images) == 1
        record, image = records[0], images[0]
        assert (record["state"], record["external_id"], image.status) == ("ready", image.id, USABLE)
        return image

    return wait_for("it is uploaded", look)


def test_from_the_build_to_the_cloud(make: Make, cloud: ExampleCloud) -> None:
    """U-1, U-5, R-11: built, uploaded as it is on the disk; taken out of the configuration it is gone everywhere."""
    builder = uploading(make, cloud)
    image = uploaded(builder, cloud)
    (build_id,) = builder.builds()
    data = (builder.images_dir / f"{IMAGE}-{build_id}.qcow2").read_bytes()
    assert (image.size, image.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    builder.extra["providers"] = [provider(cloud, diskimages=[])]
    builder.configure({})
    wait_for("its records are gone", lambda: not builder.builds())
    assert ours(cloud) == []
    wait_for("its files are gone", lambda: builder.files() <= {"builder_id.txt", ".builds"})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_end_while_it_uploads(make: Make, cloud: ExampleCloud, number: signal.Signals) -> None:
    """R-4, U-11: the upload is not waited for. The next builder on that disk deletes in the cloud what it has left, and
    makes it anew.
    """
    cloud.images.set(upload_seconds=300)
    builder = uploading(make, cloud)
    wait_for("the upload runs", lambda: cloud.images.calls["upload"] == 1)
    (left,) = ours(cloud)
    if number is signal.SIGKILL:
        builder.kill()
    else:
        assert builder.stop(number, seconds=60) == 0
    cloud.images.set(upload_seconds=0)
    builder.start()
    assert uploaded(builder, cloud).id != left.id


def test_faults_of_the_cloud(make: Make, cloud: ExampleCloud) -> None:
    """R-4, U-14: an answer is lost, and an image arrives corrupted and cannot be deleted; nothing is left."""
    cloud.images.set(lost_images=1, corrupted_uploads=1, refused_deletions=2)
    builder = uploading(make, cloud)
    wait_for("both have happened", lambda: cloud.images.calls["create"] >= 4)
    uploaded(builder, cloud)


def test_two_builders(make: Make, cloud: ExampleCloud) -> None:
    """U-1, U-2, U-10: an image is built and uploaded by one of them; a build of the other follows it."""
    builders = [uploading(make, cloud, f"builder-{number}") for number in range(2)]
    uploaded(builders[0], cloud)
    for count in (2, 3):
        builders[0].request()
        wait_for("there is another upload", lambda number=count: cloud.images.calls["create"] == number + 1)  # type: ignore[misc]
        wait_for("nobody works", lambda: not [one for one in builders[0].uploads("cloud") if one["state"] != "ready"])
    wait_for("two are kept", lambda: len(ours(cloud)) == len(builders[0].builds()) == 2)

    def files() -> set[str]:
        return {name for builder in builders for name in builder.files() if name.endswith(".qcow2")}

    wait_for(
        "files of others are gone",
        lambda: files() == {f"{IMAGE}-{build_id}.qcow2" for build_id in builders[0].builds()},
    )


# -- how an image travels: built, uploaded to clouds, booted by a launcher, replaced, and removed


@pytest.fixture
def place(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ImagePlace]:
    made = ImagePlace(tmp_path, zookeeper, chroot, znodes)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(made.clouds_file))
    made.start()
    yield made
    made.stop()


def current_id(place: ImagePlace, provider: str = "cloud-a") -> str:
    """Id of the image that launchers boot from."""
    return str((present(place.image().current(provider)).record or {})["external_id"])


def test_built_uploaded_and_booted(place: ImagePlace) -> None:
    """B-1, U-1, U-4, D-1: from nothing; a label is ready as soon as its image is."""
    place.launch()
    builder = place.add_builder()
    builder.start()
    place.ready()
    assert place.boot() == current_id(place)
    for provider, image_format in FORMATS.items():
        upload = present(place.image().current(provider))
        stored = place.cloud_images(provider)[(upload.record or {})["external_id"]]
        keys = (stored["nodepool_build_id"], stored["nodepool_upload_id"], stored["nodepool_provider_name"])
        assert keys == (upload.build_id, upload.upload_id, provider)
        assert stored["disk_format"] == image_format
    assert builder.stop() == 0


def test_a_new_build_replaces_an_older_one(place: ImagePlace) -> None:
    """R-1, R-2, R-6, R-9: two are kept; of a third one nothing is left, in no cloud and on no disk."""
    place.launch()
    place.add_builder().start()
    first = place.ready()[0].build_id
    place.records.request_build(IMAGE)
    place.ready(builds=2)
    assert place.boot() == current_id(place)
    assert len(place.image().builds) == 2
    place.records.request_build(IMAGE)

    def replaced() -> bool:
        builds = [build.build_id for build in place.image().builds]
        assert len(builds) == 2, builds
        assert first not in builds
        return True

    wait_for("the first build is gone", replaced, 60.0)
    place.ready(builds=2)
    assert not any(first in name for name in place.files())
    for provider in FORMATS:
        assert first not in [image["nodepool_build_id"] for image in place.cloud_images(provider).values()]
    assert not place.image().requested
