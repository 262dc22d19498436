# SPDX-License-Identifier: Apache-2.0
"""Our builder and the released one on the same ZooKeeper: after each other on one disk, and beside each other."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.images.image_audit import ImageAudit
from tests.chaos.transaction_log import read_writes
from tests.migration.conftest import run_released
from tests.support.build_journal import processes_of
from tests.support.image_place import FORMATS, IMAGE, ImagePlace
from tests.support.launcher import OUR_BUILDER, BuilderProcess
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: The released builder looks every ten seconds, and cleans once a minute.
PATIENCE_SECONDS = 150.0
OTHER = "noble"
REQUESTS = 8


def released_builder() -> Sequence[str]:
    return [str(released_programs().builder)]


@pytest.fixture
def place(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[ImagePlace]:
    made = ImagePlace(tmp_path, zookeeper, chroot, znodes)
    made.start()
    yield made
    made.stop()


def end(builder: BuilderProcess) -> None:
    """In order; the released one takes its time and is killed then."""
    builder.stop(signal.SIGTERM, seconds=40)


def replace(place: ImagePlace, command: Sequence[str]) -> BuilderProcess:
    """Another builder on the disk and with the configuration of the first one."""
    made = BuilderProcess(
        place.builders[0].config_path,
        place.directory / f"next{len(place.builders)}.log",
        command,
        debug=True,
        environment={"OS_CLIENT_CONFIG_FILE": str(place.clouds_file)},
    )
    place.builders.append(made)
    made.start()
    return made


def rotated(place: ImagePlace, old: Sequence[str]) -> None:
    """Waits until nothing is left of these builds: records, files, images in clouds."""

    def look() -> bool:
        builds = [build.build_id for build in place.image().builds]
        assert not set(old) & set(builds), f"records: {builds}"
        assert not [name for name in place.files() if any(build in name for build in old)], place.files()
        for provider in FORMATS:
            found = [image["nodepool_build_id"] for image in place.cloud_images(provider).values()]
            assert not set(old) & set(found), f"in {provider}: {found}"
        return True

    wait_for("the older builds are gone", look, PATIENCE_SECONDS)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("order", ["released first", "ours first"])
def test_successor_takes_over_records_and_files(place: ImagePlace, order: str) -> None:
    """B-10, R-1, U-10: nothing is built again; what a new provider lacks is uploaded from the files; old builds go."""
    commands = [released_builder(), list(OUR_BUILDER)]
    first, second = commands if order == "released first" else commands[::-1]
    place.providers = ["cloud-a"]
    place.image_settings["formats"] = ["raw"]
    builder = place.add_builder(first)
    builder.start()
    build = place.ready(seconds=PATIENCE_SECONDS)[0].build_id
    end(builder)
    identity = (place.images_dir(0) / "builder_id.txt").read_text(encoding="utf-8").strip()
    place.providers = list(FORMATS)
    place.configure(0)
    builder = replace(place, second)
    assert {upload.build_id for upload in place.ready(seconds=PATIENCE_SECONDS)} == {build}
    for count in (2, 2):
        place.records.request_build(IMAGE)
        wait_for("the request is served", lambda: not place.image().requested, PATIENCE_SECONDS)
        place.ready(builds=None, seconds=PATIENCE_SECONDS)
        assert len(place.image().builds) >= count
    rotated(place, [build])
    builders = {str((one.record or {}).get("builder_id")) for one in place.image().builds}
    assert builders == {identity}
    end(builder)


@pytest.mark.timeout(400)
def test_beside_each_other(place: ImagePlace, chroot: str) -> None:
    """B-11, U-2, U-10: each with a disk of its own, under requests; locks are respected, both sides."""
    place.images = [IMAGE, OTHER]
    place.image_settings["rebuild-age"] = 15
    place.steer(seconds=(0.5, 2.0))
    for command in (released_builder(), list(OUR_BUILDER)):
        place.add_builder(command).start()
    hand = place.records.kazoo.client_id[0]
    luck = random.Random(1)
    for _ in range(REQUESTS):
        place.records.request_build(luck.choice(place.images))
        threading.Event().wait(luck.uniform(2.0, 6.0))
    place.image_settings["rebuild-age"] = 86400
    place.configure()
    for name in place.images:
        wait_for(f"{name} is built", lambda n=name: not place.image(n).requested, PATIENCE_SECONDS)  # type: ignore[misc]
        place.ready(name, builds=None, seconds=PATIENCE_SECONDS)
    logs = sorted(place.zookeeper.directory.glob("**/version-2"))
    audit = ImageAudit(chroot, [hand, place.znodes.kazoo.client_id[0]]).follow(read_writes(logs))
    assert audit.violations == []
    identities = {
        str((build.record or {})["builder_id"]) for name in place.images for build in place.image(name).builds
    }
    made = [path.read_text(encoding="utf-8").strip() for path in place.directory.glob("images*/builder_id.txt")]
    assert identities <= set(made)
    assert len(made) == 2


@pytest.mark.timeout(400)
def test_ours_waits_for_the_lock_of_the_released_one(place: ImagePlace) -> None:
    """B-3, B-11: while it builds, ours builds nothing, whatever is requested."""
    place.steer(seconds=(12.0, 12.0))
    place.add_builder(released_builder()).start()

    def building() -> str:
        builds = [build.build_id for build in place.image().builds if build.state == "building"]
        assert builds, "nothing is being built"
        return builds[0]

    first = wait_for("the released one builds", building, PATIENCE_SECONDS)
    place.add_builder().start()
    place.records.request_build(IMAGE)
    seen: set[int] = set()

    def over() -> bool:
        image = place.image()
        seen.add(len([build for build in image.builds if build.state == "building"]))
        assert [build for build in image.builds if build.build_id == first and build.state == "ready"]
        return True

    wait_for("the first build is ready", over, PATIENCE_SECONDS)
    assert max(seen) == 1
    assert not [name for name in place.files(1) if first in name]
    # The released one leaves processes behind when it is stopped in a build.
    wait_for("nothing is being built", lambda: not place.image().requested and not place.image().lockers, 60.0)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("paused", [True, False])
def test_import(place: ImagePlace, monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    """I-1: the released builder builds in place of it, unless the image is paused in the configuration."""
    file = place.directory / "image.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(file), "1M"], check=True)
    place.providers, place.image_settings["pause"] = ["cloud-a"], paused
    builder = place.add_builder(released_builder())
    builder.start()
    if not paused:
        place.ready(seconds=PATIENCE_SECONDS)
    place.records.request_build(IMAGE, {"file": str(file)})
    if not paused:
        wait_for("the released builder serves it", lambda: not place.image().requested, PATIENCE_SECONDS)
        assert len([build for build in place.image().builds if "source" not in (build.record or {})]) == 2
        return
    looks = builder.log_text().count("Checking for")
    wait_for("it has looked", lambda: builder.log_text().count("Checking for") > looks + 1, PATIENCE_SECONDS)
    assert (place.image().requested, place.image().builds) == (True, [])
    place.add_builder().start()
    wait_for("it is uploaded", lambda: place.image().uploads("cloud-a", "ready"), PATIENCE_SECONDS)
    (build,) = place.image().builds
    assert (build.record or {})["source"] == str(file)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(place.clouds_file))
    shown = run_released(builder.config_path, "dib-image-list")
    assert f"{IMAGE}-{build.build_id}" in shown.out, shown


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ended", ["released", "ours"])
def test_build_that_was_interrupted(place: ImagePlace, ended: str) -> None:
    """A build died with its builder: the other one finds its record abandoned, removes it and builds the image."""
    old, new = [released_builder(), list(OUR_BUILDER)][:: 1 if ended == "released" else -1]
    place.steer(hang=1.0)
    builder = place.add_builder(old)
    builder.start()
    (build,) = wait_for("a build runs", lambda: place.image().builds, PATIENCE_SECONDS)
    builder.kill()
    # Nobody ends what a killed builder of 11.0.0 has begun.
    for process in processes_of(place.directory):
        os.kill(int(process.partition(" ")[0]), signal.SIGKILL)
    place.steer()
    builder = replace(place, new)
    wait_for(
        "its record is gone",
        lambda: build.build_id not in [one.build_id for one in place.image().builds],
        2 * PATIENCE_SECONDS,
    )
    assert build.build_id not in [upload.build_id for upload in place.ready(seconds=PATIENCE_SECONDS)]
    # The released one leaves the directory of the manifest.
    may_stay = set() if ended == "released" else {f"{IMAGE}-{build.build_id}.d"}
    assert {name for name in place.files() if build.build_id in name} <= may_stay
    end(builder)
