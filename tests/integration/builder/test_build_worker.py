# SPDX-License-Identifier: Apache-2.0
"""Passes of build workers, and single builds, with a real ZooKeeper and small programs for diskimage-builder."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.builder import build_attempt, build_logs, fake_build
from nodepool.builder.build_attempt import BuildAttempt, BuildServices
from nodepool.builder.build_worker import SPACE_SECONDS, BuildPlan, BuildWorker
from nodepool.builder.running_builds import RunningBuilds
from nodepool.builder.work_dir import NOTES
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.image import ImageBuild
from tests.integration.builder.conftest import MakeSite
from tests.support.image_site import IMAGE, ImageSite
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

FAKE = f"{shlex.quote(sys.executable)} -I {shlex.quote(fake_build.__file__)}"


class BuildSite:
    """Build workers of one builder, which the test calls itself."""

    def __init__(self, site: ImageSite, directory: Path) -> None:
        self.site = site
        self.directory = directory
        self.running = RunningBuilds()
        site.config.build_log_dir = str(directory / "logs")
        services = BuildServices(
            site.client, site.store, site.files, self.running, "builder.example.com", site.builder_id
        )
        self.plan = BuildPlan(services, site.known, lambda: site.config)
        self.command(FAKE)
        self.worker = BuildWorker(0, self.plan)

    def command(self, command: str) -> None:
        """What builds the image."""
        self.site.config.diskimages[IMAGE].dib_cmd = command

    def script(self, script: str) -> None:
        """A shell script builds it; ``$@`` are the arguments, ``fake`` makes the files."""
        whole = "fake() { " + FAKE + ' "$@"; }; ' + script
        self.command(f"bash -c {shlex.quote(whole)} build")

    def once(self) -> float | None:
        """One pass on what is known now."""
        self.site.sync()
        wait = self.worker.run_once()
        self.site.sync()
        return wait

    def builds(self, image: str = IMAGE) -> list[ImageBuild]:
        return self.site.store.builds(image)

    def states(self) -> list[str]:
        return [build.state for build in self.builds()]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.site.files.directory.iterdir() if path.name != NOTES)

    def log(self) -> str:
        (path,) = (self.directory / "logs").iterdir()
        return path.read_text()


@pytest.fixture
def place(make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BuildSite]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    made = BuildSite(make_site(), tmp_path)
    yield made
    assert list(temporary.iterdir()) == []
    assert list((made.site.files.directory / NOTES).glob("*")) == []
    assert made.running.current() == []


def in_background(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_pass_builds_what_is_due(place: BuildSite) -> None:
    """B-1, B-2, B-3: the provider's format, in one run; then nothing is due before the build is old."""
    assert place.once() == 0.0
    (build,) = place.builds()
    assert (build.state, build.formats, build.builder) == ("ready", ["qcow2"], "builder.example.com")
    assert build.builder_id == place.site.builder_id
    assert build.extra["size"] == sum(place.site.files.sizes(IMAGE, build.key).values())
    assert build.extra["duration"] > 0
    wait = place.once()
    assert wait is not None
    assert 86000 < wait <= 86400
    assert len(place.builds()) == 1


def test_record_comes_first(place: BuildSite) -> None:
    """B-3: while it is built everybody sees that, and what it does now."""
    place.script(
        f'echo "dib-run-parts Running /x/root.d/1"; until [ -e {place.directory}/go ]; do sleep 0.02; done; fake "$@"'
    )
    worker = in_background(place.once)
    wait_for("the step", lambda: [state.step for state in place.running.current()] == ["root"])
    (build,) = place.builds()
    assert (build.state, build.username, build.formats) == ("building", None, ["qcow2"])
    assert place.site.view().build_locked
    (status,) = place.running.as_status().items()
    assert status[0] == f"{IMAGE}/{build.key}"
    assert status[1]["step"] == "root"
    assert place.running.ids() == {build.key}
    # B-11: nobody else builds it meanwhile, neither here nor elsewhere.
    assert BuildWorker(1, place.plan).run_once() is None
    (place.directory / "go").touch()
    worker.join(60)
    assert place.states() == ["ready"]


def test_lock_of_others(place: BuildSite) -> None:
    """B-3, B-11: it is not waited for."""
    place.site.sync()
    view = place.site.known()
    with place.site.store.build_lock(IMAGE):
        place.worker._plan = BuildPlan(place.plan.services, lambda: view, place.plan.config)
        assert place.worker.run_once() is None
    assert place.builds() == []


def test_somebody_was_faster(place: BuildSite) -> None:
    """B-3: what was decided on old knowledge is decided again."""
    place.site.sync()
    view = place.site.known()
    place.site.build()
    place.worker._plan = BuildPlan(place.plan.services, lambda: view, place.plan.config)
    assert place.worker.run_once() is None
    assert place.states() == ["ready"]


def test_exit_code(place: BuildSite) -> None:
    """B-8, B-13, B-14: failed, without formats and without files; then there is a pause."""
    place.script('fake "$@"; exit 4')
    assert place.once() == 0.0
    (build,) = place.builds()
    assert (build.state, build.formats) == ("failed", [])
    assert place.files() == []
    assert place.log().endswith("Exit code: 4\n")
    wait = place.once()
    assert wait is not None
    assert 50 < wait <= 60


def test_request_is_worth_one_attempt(place: BuildSite) -> None:
    """B-4, B-13: a request that came after the failure is served at once, once; it stays until a build is ready."""
    place.script("exit 4")
    place.once()
    place.site.store.request_build(IMAGE)
    assert place.once() == 0.0
    assert len(place.builds()) == 2
    assert place.once() != 0.0
    assert place.site.store.build_request(IMAGE) is not None
    # The configuration has changed.
    place.command(FAKE)
    assert place.once() == 0.0
    assert place.site.store.build_request(IMAGE) is None


def test_request_that_comes_late_is_not_lost(place: BuildSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-4: one that came after the build was ready asks for another."""
    store = BuildAttempt._store

    def store_and_ask(attempt: BuildAttempt, lock: Any) -> bool:
        stored = store(attempt, lock)
        place.site.store.remove_build_request(IMAGE)
        place.site.store.request_build(IMAGE)
        return stored

    place.site.store.request_build(IMAGE)
    monkeypatch.setattr(BuildAttempt, "_store", store_and_ask)
    place.once()
    assert place.site.store.build_request(IMAGE) is not None


def test_error_that_nobody_foresaw(
    place: BuildSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B-14: the record has failed, and keeps its formats."""

    def prune(*arguments: object) -> None:
        raise RuntimeError("strange")

    monkeypatch.setattr(build_logs, "prune", prune)
    place.once()
    (build,) = place.builds()
    assert (build.state, build.formats) == ("failed", ["qcow2"])
    assert "RuntimeError: strange" in caplog.text


@pytest.mark.parametrize("command", ["/nonexistent/dib", "'not closed"])
def test_command_that_cannot_be_started(place: BuildSite, command: str) -> None:
    """B-14: failed, with the reason in the log of the build."""
    place.command(command)
    place.once()
    assert place.states() == ["failed"]
    assert "No such file" in place.log() or "No closing quotation" in place.log()


def test_log_that_cannot_be_written(place: BuildSite, caplog: pytest.LogCaptureFixture) -> None:
    place.site.config.build_log_dir = "/dev/null/logs"
    place.once()
    assert place.states() == ["failed"]
    assert "its log cannot be written" in caplog.text


def test_build_without_an_image(place: BuildSite, caplog: pytest.LogCaptureFixture) -> None:
    """A record is not ready without an image."""
    place.script("exit 0")
    place.once()
    assert place.states() == ["failed"]
    assert "though the build succeeded" in caplog.text


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
    monkeypatch.setattr(build_attempt, "STORE_SECONDS", 0.0)
    place.once()
    assert place.states() == ["building"]
    assert place.files() == []


def test_no_room(place: BuildSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Twice the size of the last build must be free; why nothing is built is said, once. No record is made."""
    place.once()
    place.site.store.request_build(IMAGE)
    with monkeypatch.context() as patch:
        patch.setattr(place.site.files, "free_bytes", lambda: 0)
        assert place.once() == SPACE_SECONDS
        assert place.once() == SPACE_SECONDS
    assert len(place.builds()) == 1
    told = [record.getMessage() for record in caplog.records if "is not built" in record.getMessage()]
    assert len(told) == 1
    assert "2 times as much must be free" in told[0]
    assert place.once() == 0.0
    assert len(place.builds()) == 2


def test_stopped_worker_begins_nothing(place: BuildSite) -> None:
    place.worker.end_build("the builder stops")
    place.once()
    assert place.builds() == []


def test_end_of_a_build(place: BuildSite) -> None:
    """Its record says failed."""
    place.script("sleep 300")
    worker = in_background(place.worker.run_once)
    wait_for("it runs", place.running.ids)
    place.worker.end_build("the builder stops")
    worker.join(60)
    assert place.states() == ["failed"]
    assert place.log().endswith("The build was ended: the builder stops\n")


def test_who_asked_comes_first(place: BuildSite) -> None:
    """Requests before what is due anyway, the oldest first."""
    place.site.configure(["cloud"], [IMAGE, "second", "third"])
    for image in place.site.config.diskimages.values():
        image.dib_cmd = FAKE
    place.site.config.build_log_dir = str(place.directory / "logs")
    place.site.store.request_build("third")
    place.once()
    assert [len(place.builds(image)) for image in (IMAGE, "second", "third")] == [0, 0, 1]


def test_not_before_all_is_known(place: BuildSite) -> None:
    place.worker._plan = BuildPlan(place.plan.services, lambda: None, place.plan.config)
    assert place.worker.run_once() is None
    assert place.builds() == []


def test_paused_image(place: BuildSite) -> None:
    """P-1"""
    place.site.store.set_paused(IMAGE, True)
    assert place.once() is None
    assert place.builds() == []
    assert states.READY not in place.states()
