# SPDX-License-Identifier: Apache-2.0
"""The real diskimage-builder, run, ended and killed by our builder (B-3 to B-9, B-15, R-5, R-9)."""

from __future__ import annotations

import hashlib
import shutil
import signal
import sys

import pytest

from tests.functional.builder.confined import USER
from tests.functional.builder.site import SMALL, BuilderSite
from tests.support.command_line import CommandLine
from tests.support.image_znodes import Build
from tests.support.launcher import BuilderProcess
from tests.support.wait import wait_for

#: The builder waits some seconds for diskimage-builder's traps, and then kills.
STOP_SECONDS = 90.0


def begin_to_sleep(site: BuilderSite, phase: str, *prefix: str) -> tuple[BuilderProcess, Build]:
    """Starts a builder, whose first build sleeps in a phase."""
    variables = {**SMALL["env-vars"], "NODEPOOL_TEST_SLEEP": phase}
    elements = [*SMALL["elements"], "sleeper"]
    site.configure([{**SMALL, "formats": ["qcow2"], "elements": elements, "env-vars": variables}])
    builder = site.start(*prefix)
    build = site.wait_build("small", "building")
    step = f"dib-run-parts Running /tmp/in_target.d/{phase}.d/50-sleep"
    wait_for(f"the build is at {step}", lambda: step in site.build_log(build), STOP_SECONDS)
    return builder, build


def test_formats_and_checksums(site: BuilderSite) -> None:
    """One run makes all formats, with the checksums that uploads pass on; nothing else is left of it."""
    site.configure([{**SMALL, "formats": ["qcow2", "raw"]}])
    builder = site.start()
    build = site.wait_build("small")
    assert (build.record or {})["formats"] == "qcow2,raw"
    assert len({site.sums(build, image_format)["sha256"] for image_format in ("qcow2", "raw")}) == 2
    log = site.build_log(build)
    assert log.count("Build completed successfully") == 1
    assert log.endswith("Exit code: 0\n")
    site.wait_nothing_remains()
    assert builder.stop(signal.SIGINT, STOP_SECONDS) == 0


def test_import(site: BuilderSite) -> None:
    """I-1, I-6: a real image, as the file of another tool, is imported for providers of two formats."""
    site.configure([{**SMALL, "formats": ["qcow2"]}])
    builder = site.start()
    file = site.directory / "made.qcow2"
    shutil.copyfile(site.file(site.wait_build("small"), "qcow2"), file)
    site.configure([{"name": "imported", "formats": ["qcow2", "raw"], "pause": True}])
    done = CommandLine(site.config)("image-import", "imported", "--file", str(file), "--wait")
    assert done.status == 0, done
    build = site.wait_build("imported")
    assert site.sums(build, "qcow2")["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert site.file(build, "raw").exists()
    assert "Making raw of qcow2: qemu-img convert" in site.build_log(build)
    site.wait_nothing_remains()
    assert builder.stop(signal.SIGINT, STOP_SECONDS) == 0


@pytest.mark.parametrize("phase", ["install", "finalise"])
def test_ended_build(site: BuilderSite, phase: str) -> None:
    """SIGTERM: diskimage-builder's traps unmount, also the image itself; the build has failed."""
    builder, build = begin_to_sleep(site, phase)
    assert len(site.remains().mounts) >= 5
    assert bool(site.remains().loop_devices) is (phase == "finalise")
    builder.stop(signal.SIGTERM, STOP_SECONDS)
    site.wait_nothing_remains()
    assert site.records.image("small").lockers == []
    (record,) = site.records.image("small").builds
    assert (record.build_id, record.state) == (build.build_id, "failed")
    # What its traps did can be read.
    assert "trap_cleanup" in site.build_log(build)


def test_killed_builder(site: BuilderSite) -> None:
    """SIGKILL while the image is mounted: the next start unmounts, removes the files and the record, and builds."""
    builder, build = begin_to_sleep(site, "finalise")
    builder.kill()
    assert site.remains()
    site.configure([{**SMALL, "formats": ["qcow2"]}])
    site.start()
    site.wait_build("small")
    site.wait_nothing_remains()
    wait_for(
        "its record is gone", lambda: build.build_id not in [one.build_id for one in site.records.image("small").builds]
    )
    assert not site.file(build, "qcow2").exists()


def as_in_the_unit(site: BuilderSite, user: str) -> list[str]:
    """What starts a builder as a user, confined as etc/nodepool-builder.service says."""
    for path in (site.directory, *site.directory.rglob("*")):
        shutil.chown(path, user)
    return [sys.executable, "-m", "tests.functional.builder.confined", str(site.directory / "mounts"), user]


@pytest.mark.parametrize("user", ["root", USER])
def test_unit(site: BuilderSite, user: str) -> None:
    """In the sandbox of the unit a build is made, as root and as a user with sudo, whose file it is then."""
    site.configure([{**SMALL, "formats": ["qcow2"]}])
    builder = site.start(*as_in_the_unit(site, user))
    build = site.wait_build("small")
    site.sums(build, "qcow2")
    site.wait_nothing_remains()
    builder.stop(signal.SIGTERM, STOP_SECONDS)
    assert site.file(build, "qcow2").owner() == user


@pytest.mark.parametrize("user", ["root", USER])
def test_ended_build_in_the_unit(site: BuilderSite, user: str) -> None:
    """SIGTERM: what a build has mounted is gone, also what root's processes have mounted for the user."""
    builder, _ = begin_to_sleep(site, "finalise", *as_in_the_unit(site, user))
    builder.stop(signal.SIGTERM, STOP_SECONDS)
    assert str(site.temporary) not in (site.directory / "mounts").read_text(encoding="utf-8")
    site.wait_nothing_remains()
