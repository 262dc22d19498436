# SPDX-License-Identifier: Apache-2.0
"""Single builds, from the record ``building`` to their end, with small programs in the place of diskimage-builder."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodepool.builder import build as builder_build
from nodepool.builder import image_files
from nodepool.builder.build import SPACE_SECONDS, BuildQueue, BuildWorker, conversion_commands
from nodepool.builder.image_files import allocated_bytes
from nodepool.config.objects import Label
from nodepool.driver.azure import AzureDriver
from nodepool.driver.azure.config import MIB, AzureProviderConfig
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImagesView
from tests.support.build_site import FAKE, BuildSite, in_background
from tests.support.image_site import IMAGE
from tests.support.session_loss import expire_session
from tests.support.tables import rows
from tests.support.vhd import FOOTER_BYTES, is_fixed
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.driver.azure.support import section


def test_record_comes_first(place: BuildSite) -> None:
    """B-3: while it is built everybody sees that, and what it does now."""
    place.script(
        f'echo "dib-run-parts Running /x/root.d/1"; until [ -e {place.directory}/go ]; do sleep 0.02; done; fake "$@"'
    )
    worker = in_background(place.once)
    wait_for("the step", lambda: [state.step for state in place.running.current().values()] == ["root"])
    (build,) = place.builds()
    assert (build.state, build.username, build.formats) == ("building", None, ["qcow2"])
    assert place.site.view().build_locked
    (status,) = place.running.as_status().items()
    assert status[0] == f"{IMAGE}/{build.key}"
    assert status[1]["step"] == "root"
    assert place.running.ids() == {build.key}
    # B-11: nobody else builds it meanwhile, neither here nor elsewhere.
    assert BuildWorker(1, place.site.shared, BuildQueue()).run_once() is None
    (place.directory / "go").touch()
    worker.join(60)
    assert place.states() == ["ready"]


@pytest.fixture
def azure_image(place: BuildSite) -> BuildSite:
    """A provider in Azure uses the image; its disk is no whole number of MiB, as those of diskimage-builder are not."""
    config = place.site.config
    config.labels["small"] = Label("small")
    config.diskimages[IMAGE].image_types.clear()
    config.diskimages[IMAGE].env_vars["FAKE_BUILD_BYTES"] = str(MIB + 64 * 1024)
    AzureDriver().getProviderConfig(section(diskimages=[{"name": IMAGE}])).load(config)
    return place


@pytest.mark.parametrize("more", [set(), {"raw"}])
def test_form_that_a_cloud_takes(azure_image: BuildSite, more: set[str]) -> None:
    """B-18: qemu-img makes a fixed VHD of whole MiB of the raw image, which goes if nothing else needs it."""
    azure_image.site.config.diskimages[IMAGE].image_types |= more
    azure_image.once()
    (build,) = azure_image.builds()
    assert (build.state, set(build.formats)) == ("ready", {"vhd", *more}), azure_image.log()
    files = azure_image.site.files
    assert files.formats(IMAGE, build.key) == {"vhd", *more}
    vhd = files.path(IMAGE, build.key, "vhd")
    assert is_fixed(vhd)
    assert vhd.stat().st_size == 2 * MIB + FOOTER_BYTES
    if more:
        raw = files.path(IMAGE, build.key, "raw").read_bytes()
        assert vhd.read_bytes()[:-FOOTER_BYTES] == raw + bytes(2 * MIB - len(raw))
    assert "Making vhd of raw: qemu-img create" in azure_image.log()
    assert azure_image.log().endswith("Exit code: 0\n")


def test_what_is_empty_takes_no_room(tmp_path: Path) -> None:
    """B-18: the made disk is as sparse as its source."""
    conversion, source, target = AzureProviderConfig.image_conversion, tmp_path / "a.raw", tmp_path / "a.vhd"
    assert conversion is not None
    with source.open("wb") as file:
        file.write(b"x" * 64 * 1024)
        file.truncate(64 * MIB)
    for words in conversion_commands(conversion, source, target, 64 * MIB):
        subprocess.run(words, check=True)
    assert is_fixed(target)
    assert target.stat().st_size == 64 * MIB + FOOTER_BYTES
    assert allocated_bytes(target) < MIB


def test_no_qemu_img(azure_image: BuildSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """B-18: that is one line, before the build has taken its hour."""
    monkeypatch.setenv("PATH", "/nowhere")
    azure_image.once()
    assert azure_image.states() == ["failed"]
    text = "qemu-img is missing, which makes vhd; install qemu-utils, or correct PATH: /nowhere"
    assert text in caplog.text
    assert azure_image.log() == f"{text}\n"


def test_qemu_img_fails(
    azure_image: BuildSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B-18, B-9: the build has failed, and leaves nothing."""
    program = tmp_path / "programs" / "qemu-img"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no space >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    azure_image.once()
    assert azure_image.states() == ["failed"]
    assert "qemu-img create: exit code 3" in caplog.text
    assert "no space" in azure_image.log()
    assert azure_image.files() == []


def test_request_that_comes_late_is_not_lost(place: BuildSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-4: one that came after the build was ready asks for another."""
    store = place.site.store.store_build

    def store_and_ask(build: ImageBuild, under: Any = None) -> None:
        store(build, under)
        if build.state == states.READY:
            place.site.store.remove_build_request(IMAGE)
            place.site.store.request_build(IMAGE)

    place.site.store.request_build(IMAGE)
    monkeypatch.setattr(place.site.store, "store_build", store_and_ask)
    place.once()
    assert place.site.store.build_request(IMAGE) is not None


def test_error_that_nobody_foresaw(
    place: BuildSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B-14: the record has failed, and keeps its formats."""

    def prune(*arguments: object) -> None:
        raise RuntimeError("strange")

    monkeypatch.setattr(image_files, "prune", prune)
    place.once()
    (build,) = place.builds()
    assert (build.state, build.formats) == ("failed", ["qcow2"])
    assert "RuntimeError: strange" in caplog.text


@rows(__file__, "builds_that_cannot_succeed")
def test_build_that_cannot_succeed(
    place: BuildSite, caplog: pytest.LogCaptureFixture, command: str, words: str
) -> None:
    """B-14: failed, with the reason. A record is not ready without an image."""
    place.command(command)
    if command == "no log":
        place.site.config.build_log_dir = "/dev/null/logs"
    place.once()
    assert place.states() == ["failed"]
    assert words in caplog.text


def test_record_that_is_gone(place: BuildSite) -> None:
    """B-9: what no record names does not stay on the disk."""
    place.script(f'until [ -e {place.directory}/go ]; do sleep 0.02; done; fake "$@"')
    worker = in_background(place.once)
    (build_id,) = wait_for("it runs", place.running.ids)
    place.site.store.delete_build(IMAGE, build_id)
    (place.directory / "go").touch()
    worker.join(60)
    assert place.builds() == []
    assert place.files() == []


def test_lost_session(place: BuildSite, zookeeper: ZooKeeperServer, chroot: str) -> None:
    """B-8: the build is ended, because somebody else may build the image by now; its record says failed."""
    place.script("sleep 300")
    worker = in_background(place.worker.run_once)
    wait_for("it runs", place.running.ids)
    expire_session(zookeeper.plain_hosts(chroot), place.site.client.kazoo.client_id)
    worker.join(60)
    assert not worker.is_alive()
    assert place.states() == ["failed"]
    assert "the session with ZooKeeper was lost" in place.log()
    assert place.files() == []


def test_zookeeper_that_is_away_at_the_end(place: BuildSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a build is stored as soon as the connection is back; hours of work are not thrown away."""
    store, errors = place.site.store.store_build, [ZKConnectionError("away"), ZKConnectionError("away")]

    def store_build(build: ImageBuild, under: Any = None) -> None:
        if errors:
            raise errors.pop()
        store(build, under)

    monkeypatch.setattr(place.site.store, "store_build", store_build)
    place.once()
    assert place.states() == ["ready"]


def test_zookeeper_that_stays_away(place: BuildSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-9: the files go, and whoever comes next finds an abandoned record (R-5)."""

    def store_build(build: ImageBuild, under: Any = None) -> None:
        raise ZKConnectionError("away")

    monkeypatch.setattr(place.site.store, "store_build", store_build)
    monkeypatch.setattr(builder_build, "STORE_SECONDS", 0.0)
    place.once()
    assert place.states() == ["building"]
    assert place.files() == []


# -- what is built in a pass, and what is left to others


def test_what_a_worker_knows(place: BuildSite) -> None:
    """B-3, B-11: nothing is built before all is known. A lock of others is not waited for. What was decided on old
    knowledge is decided again.
    """

    def run_with(view: ImagesView | None) -> float | None:
        shared = dataclasses.replace(place.site.shared, images=lambda: view)
        return BuildWorker(1, shared, BuildQueue()).run_once()

    assert run_with(None) is None
    place.site.sync()
    view = place.site.known()
    with place.site.store.build_lock(IMAGE):
        assert run_with(view) is None
    assert place.builds() == []
    place.site.build()
    assert run_with(view) is None
    assert place.states() == ["ready"]


def test_no_room(place: BuildSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Twice the size of the last build must be free; why nothing is built is said, once. No record is made."""
    place.once()
    place.site.store.request_build(IMAGE)
    with monkeypatch.context() as patch:
        patch.setattr(place.site.files, "free_bytes", lambda: 0)
        assert place.once() == SPACE_SECONDS
        assert place.once() == SPACE_SECONDS
    assert len(place.builds()) == 1
    told = [record.getMessage() for record in caplog.records if "cannot be built" in record.getMessage()]
    assert len(told) == 1
    assert "2 times as much must be free" in told[0]
    assert place.once() == 0.0
    assert len(place.builds()) == 2


def test_stopped_worker_begins_nothing(place: BuildSite) -> None:
    place.worker.end_build("the builder stops")
    place.once()
    assert place.builds() == []


def test_who_asked_comes_first(place: BuildSite) -> None:
    """Requests before what is due anyway, the oldest first."""
    place.site.configure(["cloud"], [IMAGE, "second", "third"])
    for image in place.site.config.diskimages.values():
        image.dib_cmd = FAKE
    place.site.config.build_log_dir = str(place.directory / "logs")
    place.site.store.request_build("third")
    place.once()
    assert [len(place.builds(image)) for image in (IMAGE, "second", "third")] == [0, 0, 1]
