# SPDX-License-Identifier: Apache-2.0
"""Commands for images while a builder works (reference/commands 2), with two fake clouds and fake builds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.fake_builder import IMAGE, FakeBuilder
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import holds_for, wait_for
from tests.support.zookeeper import ZooKeeperServer

CLOUDS = ("cloud-a", "cloud-b")


class Site:
    """A builder, and the command line with its configuration."""

    def __init__(self, builder: FakeBuilder) -> None:
        self.builder = builder
        settings = yaml.safe_load(builder.config_path.read_text(encoding="utf-8"))
        settings["providers"] = [
            {"name": name, "driver": "fake", "diskimages": [{"name": IMAGE}], "pools": []} for name in CLOUDS
        ]
        builder.config_path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self.nodepool = CommandLine(builder.config_path)

    def listed(self, *command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.nodepool(*command, "--format", "json").out)
        return found

    def uploads(self, provider: str) -> dict[str, dict[str, Any]]:
        """Build id -> row of ``image-list --detail``, of ready uploads."""
        rows = self.listed("image-list", "--detail")
        return {row["id"]: row for row in rows if row["provider"] == provider and row["state"] == "ready"}

    def delete_upload(self, build: str, provider: str) -> None:
        """Have the ready upload of a build deleted."""
        number = self.uploads(provider)[build]["upload_id"]
        where = ["--provider", provider, "--image", IMAGE, "--build-id", build, "--upload-id", number]
        assert self.nodepool("image-delete", *where).status == 0

    def build(self) -> str:
        """Have a build made and uploaded, with the commands that wait; returns its id."""
        known = self.builder.builds().keys()
        result = self.nodepool("image-build", IMAGE, "--wait")
        assert (result.status, result.err) == (0, "")
        last = result.out.splitlines()[-1]
        assert last.startswith(f"Build {IMAGE}-")
        assert last.endswith(" is ready")
        build_id = last.split()[1].rpartition("-")[2]
        assert build_id not in known
        wait_for("its uploads", lambda: all(build_id in self.uploads(cloud) for cloud in ("cloud-a", "cloud-b")))
        return build_id


@pytest.fixture
def site(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[Site]:
    builder = FakeBuilder(tmp_path / "builder", zookeeper, chroot, znodes)
    made = Site(builder)
    builder.start()
    try:
        builder.wait_ready()
        builder.wait_state("ready")
        yield made
    finally:
        builder.stop(seconds=60)
    assert "Traceback" not in builder.log_text()


def test_going_back(site: Site) -> None:
    """R-18: builders leave the older upload in front, until there is a newer build."""
    first, second = site.build(), site.build()
    result = site.nodepool("image-rollback", "cloud-a", IMAGE)
    assert (result.status, result.err) == (0, "")

    def uses() -> dict[str, Any]:
        return {build: row["use"] for build, row in site.uploads("cloud-a").items()}

    assert uses() == {first: "current", second: "rolled back"}
    assert site.uploads("cloud-b")[second]["use"] == "current"
    before = site.uploads("cloud-b")[second]["upload_id"]
    site.delete_upload(second, "cloud-b")
    holds_for(
        "nobody uploads the newer build to the other cloud again",
        lambda: uses() == {first: "current", second: "rolled back"},
        until=lambda: site.uploads("cloud-b").get(second, {}).get("upload_id", "") > before,
    )
    third = site.build()
    assert site.uploads("cloud-a")[third]["use"] == "current"


def test_deletions(site: Site) -> None:
    """R-13: an upload that is deleted is uploaded again; a build that is deleted is gone everywhere, with its files."""
    build = site.build()
    before = site.uploads("cloud-a")[build]["upload_id"]
    site.delete_upload(build, "cloud-a")
    wait_for("it is uploaded again", lambda: site.uploads("cloud-a").get(build, {}).get("upload_id", "") > before)
    assert site.nodepool("dib-image-delete", f"{IMAGE}-{build}").status == 0
    wait_for("the build is gone", lambda: build not in site.builder.builds())
    assert build not in {row["id"] for row in site.listed("image-list")}
    assert not [name for name in site.builder.files() if build in name]


def test_bars_on_a_terminal(site: Site) -> None:
    """The build that runs is drawn with its step, and the last line stays; the log is here."""
    site.builder.configure({IMAGE: {"formats": ["raw"], "env-vars": {"FAKE_BUILD_SECONDS": "4"}}})
    Site(site.builder)
    (build, *_) = site.builder.builds()
    assert site.nodepool("image-log", f"{IMAGE}-{build}").out == site.builder.log_of(build)
    result = site.nodepool.on_terminal("image-build", IMAGE, "--wait")
    lines = [line for line in result.out.splitlines() if f"{IMAGE}-" in line]
    assert (result.status, len(lines) > 1, result.out.rstrip().endswith(" is ready")) == (0, True, True)
