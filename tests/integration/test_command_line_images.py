# SPDX-License-Identifier: Apache-2.0
"""``nodepool`` for images, against a real ZooKeeper with TLS (reference/commands 2)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.support.command_line import CommandLine, Result
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

#: Ids of builds.
A, B, C = (letter * 32 for letter in "abc")


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return ImageZnodes(znodes)


@pytest.fixture
def configured(nodepool: CommandLine) -> CommandLine:
    """The command line, with images in its configuration."""
    settings = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    settings["diskimages"] = [
        {"name": "base", "abstract": True},
        {"name": "debian", "parent": "base", "formats": ["raw"]},
        {"name": "resting", "pause": True},
        {"name": "unused"},
    ]
    nodepool.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return nodepool


@pytest.fixture
def waiting(configured: CommandLine) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands that wait; in the end none is left."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        started.append(configured.start(*arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> Result:
    out, err = process.communicate(timeout=60)
    return Result(process.returncode, out, err)


class TestLists:
    def test_uploads(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """reference/commands 2: columns of image-list; records that cannot be read are logged."""
        images.add_build("debian", A)
        images.add_upload("debian", A)
        images.add_upload("debian", A, "other", state="failed", external_id=None, external_name=None)
        images.put(f"debian/builds/{A}/providers/other/images/0000000009", b"foreign")
        images.put(f"debian/builds/{A}/providers/other/images/lock")
        result = nodepool("image-list")
        assert result.status == 0
        headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
        assert headers == [
            *("Build ID", "Upload ID", "Provider", "Image"),
            *("Provider Image Name", "Provider Image ID", "State", "Age"),
        ]
        lab, other = result.rows
        assert lab[:7] == [A, "0000000001", "lab", "debian", "debian-1", "ext", "ready"]
        assert lab[7].startswith("00:00:00:3")
        assert other[:7] == [A, "0000000001", "other", "debian", "", "", "failed"]
        assert "0000000009" in result.err
        (first, _) = json.loads(nodepool("image-list", "--format", "json").out)
        assert first.pop("age").startswith("00:00:00:3")
        assert first == {
            "id": A,
            "upload_id": "0000000001",
            "provider": "lab",
            "image": "debian",
            "external_name": "debian-1",
            "external_id": "ext",
            "state": "ready",
        }

    def test_builds(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """reference/commands 2: columns of dib-image-list; builds of a paused image are shown as paused."""
        images.add_build("debian-12", A)
        images.add_build("fedora", B, state="building", formats="")
        images.put("fedora/pause")
        result = nodepool("dib-image-list")
        headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
        assert headers == ["ID", "Image", "Builder", "Formats", "State", "Age"]
        assert [row[:5] for row in result.rows] == [
            [f"debian-12-{A}", "debian-12", "b.example", "qcow2,raw", "ready"],
            [f"fedora-{B}", "fedora", "b.example", "", "paused"],
        ]
        assert json.loads(nodepool("dib-image-list", "--format", "json").out)[0]["formats"] == ["qcow2", "raw"]

    def test_details(self, nodepool: CommandLine, images: ImageZnodes, add_node: Callable[..., str]) -> None:
        """How far builders are, and which nodes use a build."""
        images.add_build("debian", A, duration=61)
        images.add_build("debian", B, state="building")
        node = add_node(image_id=images.add_upload("debian", A))
        images.add_upload("debian", A, "other", state="uploading")
        images.tell(
            builds={f"debian/{B}": {"step": "install", "estimate": 90.0}},
            uploads={f"debian/{A}/other/0000000001": {"percent": 12.5, "bytes_per_second": 1024, "size": 2048}},
        )
        builds = {row["id"]: row for row in json.loads(nodepool("dib-image-list", "--detail", "--format", "json").out)}
        assert (builds[f"debian-{A}"]["duration"], builds[f"debian-{A}"]["nodes"]) == (61, [node])
        running = builds[f"debian-{B}"]
        assert (running["step"], running["estimate"], running["nodes"]) == ("install", 90.0, [])
        assert 60 <= running["duration"] < 120
        lab, other = json.loads(nodepool("image-list", "--detail", "--format", "json").out)
        assert (lab["use"], lab["format"], lab["progress"]) == ("current", "qcow2", None)
        assert (other["use"], other["progress"], other["speed"], other["size"]) == (None, 12.5, 1024, 2048)

    def test_status(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """reference/commands 2: the images that ZooKeeper knows."""
        assert json.loads(nodepool("image-status", "--format", "json").out) == []
        images.put("debian/request-build")
        images.put("fedora/pause")
        images.add_build("gentoo", A, state="building")
        images.put("gentoo/request-build")
        with images.locked("gentoo/builds"):
            result = nodepool("image-status")
        headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
        assert headers == ["Image", "Paused", "Build Request", "Build Request Age"]
        assert [row[:3] for row in result.rows] == [
            ["debian", "False", "pending"],
            ["fedora", "True", ""],
            ["gentoo", "False", "building"],
        ]
        assert result.rows[0][3].startswith("00:00:00:")
        fedora = json.loads(nodepool("image-status", "--format", "json").out)[1]
        assert fedora == {"image": "fedora", "paused": True, "build_request": None, "build_request_age": None}


class TestBuildAndPause:
    def test_request(self, configured: CommandLine, images: ImageZnodes) -> None:
        """reference/commands 2: nothing is printed; the request is there, and no builder is told on stderr."""
        result = configured("image-build", "debian")
        assert (result.status, result.out) == (0, "")
        assert "No builder is running: the build of debian waits for one" in result.err
        assert images.kazoo.exists(f"{IMAGES}/debian/request-build")
        images.add_builder()
        assert configured("image-build", "debian") == Result(0, "", "")

    @pytest.mark.parametrize("name", ["nonsense", "base", "../nodes"])
    def test_image_that_is_not_built(self, configured: CommandLine, images: ImageZnodes, name: str) -> None:
        """reference/commands 2: the text of released Nodepool, and what there is."""
        result = configured("image-build", name)
        there = "images in the configuration: debian, resting, unused"
        text = f"Trying to build a non disk-image-builder image: {name}; {there}"
        assert result == Result(1, "", f"{text}\n")
        assert images.kazoo.exists(IMAGES) is None

    def test_image_that_the_configuration_pauses(self, configured: CommandLine, images: ImageZnodes) -> None:
        result = configured("image-build", "resting")
        assert (result.status, result.out) == (1, "")
        assert result.err.startswith("Skipping build request for image resting; paused")
        assert images.kazoo.exists(IMAGES) is None

    def test_pause(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """rule P-1: the flag in ZooKeeper; setting and clearing it twice is fine."""
        images.add_build("debian", A)
        for _ in range(2):
            assert nodepool("image-pause", "debian") == Result(0, "", "")
            assert images.kazoo.get(f"{IMAGES}/debian/pause")[0] == b""
        for _ in range(2):
            assert nodepool("image-unpause", "debian") == Result(0, "", "")
            assert images.kazoo.exists(f"{IMAGES}/debian/pause") is None

    @pytest.mark.parametrize("command", ["image-pause", "image-unpause"])
    def test_pause_of_an_unknown_image(self, nodepool: CommandLine, images: ImageZnodes, command: str) -> None:
        images.add_build("debian", A)
        result = nodepool(command, "nonsense")
        assert result == Result(1, "", "ZooKeeper knows no image nonsense; images: debian\n")
        assert images.znodes.children(IMAGES) == ["debian"]


class TestWait:
    def test_build(self, waiting: Callable[..., subprocess.Popen[str]], images: ImageZnodes) -> None:
        """--wait: ends when the build does; a line for each 10%."""
        images.add_builder()
        images.add_build("debian", A)
        process = waiting("image-build", "debian", "--wait")
        wait_for("the request", lambda: images.kazoo.exists(f"{IMAGES}/debian/request-build"))
        assert process.stdout is not None
        assert process.stdout.readline() == "debian: waiting for a builder\n"
        images.tell(builds={f"debian/{B}": {"step": "install", "estimate": 100000}})
        images.add_build("debian", B, state="building")
        assert process.stdout.readline().startswith(f"debian-{B}:   0% install 1 min of about ")
        images.add_build("debian", B)
        assert ended(process) == Result(0, f"Build debian-{B} is ready\n", "")

    def test_build_that_fails(self, waiting: Callable[..., subprocess.Popen[str]], images: ImageZnodes) -> None:
        images.add_builder()
        process = waiting("image-build", "debian", "--wait")
        wait_for("the request", lambda: images.kazoo.exists(f"{IMAGES}/debian/request-build"))
        images.add_build("debian", A, state="failed")
        result = ended(process)
        assert (result.status, result.err) == (1, f"Build debian-{A} has failed; its log is on b.example\n")

    @pytest.mark.parametrize("options", [[], ["--wait"]])
    def test_image_that_nobody_builds(self, configured: CommandLine, images: ImageZnodes, options: list[str]) -> None:
        """B-2: without formats and without a provider that uses it; it is refused instead of waited for."""
        images.add_builder()
        result = configured("image-build", "unused", *options)
        text = "Image unused has no formats, and no provider uses it: there is nothing to build\n"
        assert result == Result(1, "", text)
        assert not images.kazoo.exists(f"{IMAGES}/unused/request-build")

    def test_request_of_a_paused_image(self, configured: CommandLine, images: ImageZnodes) -> None:
        """P-1: the request waits, and the operator is told what for; it is no error."""
        images.add_builder()
        images.put("debian/pause")
        result = configured("image-build", "debian")
        assert (result.status, result.out) == (0, "")
        assert "Image debian is paused: its build waits for nodepool image-unpause debian" in result.err
        assert images.kazoo.exists(f"{IMAGES}/debian/request-build")

    def test_nobody_builds(self, configured: CommandLine, images: ImageZnodes) -> None:
        """It says so at once instead of waiting for ever; the request stays."""
        result = configured("image-build", "debian", "--wait")
        assert result == Result(1, "", "No builder is running: the build of debian waits for one\n")
        images.add_builder()
        images.put("debian/pause")
        result = configured("image-build", "debian", "--wait")
        assert (result.status, "is paused" in result.err) == (1, True)
        assert images.kazoo.exists(f"{IMAGES}/debian/request-build")


class TestDelete:
    def test_build(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """rule R-13: the build becomes deleting, under its lock; all else of the record stays."""
        path = images.add_build("debian-12", A, of_tomorrow=1)
        images.add_upload("debian-12", A)
        assert nodepool("dib-image-delete", f"debian-12-{A}") == Result(0, "", "")
        record = images.read(path)
        assert record is not None
        assert (record["state"], record["of_tomorrow"], record["builder"]) == ("deleting", 1, "b.example")
        assert record["state_time"] > images.kazoo.get(path)[1].ctime / 1000
        assert images.znodes.children(f"{path}/lock") == []
        version = images.kazoo.get(path)[1].version
        assert nodepool("dib-image-delete", f"debian-12-{A}").status == 0
        assert images.kazoo.get(path)[1].version == version

    def test_build_that_runs(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        path = images.add_build("debian", A, state="building")
        assert nodepool("dib-image-delete", f"debian-{A}") == Result(1, "Cannot delete a build in progress\n", "")
        assert (images.read(path) or {})["state"] == "building"

    @pytest.mark.parametrize("name", [f"debian-{C}", "nonsense", f"fedora-{A}", "", "debian-", "debian-.."])
    def test_build_that_is_not_there(self, nodepool: CommandLine, images: ImageZnodes, name: str) -> None:
        """reference/commands 2: the text of released Nodepool, and on stderr what there is; nothing is made."""
        images.add_build("debian", A)
        result = nodepool("dib-image-delete", name)
        assert (result.status, result.out) == (1, f"Build {name} not found\n")
        assert f"debian-{A}" in result.err or "images: debian" in result.err
        assert len(result.err.splitlines()) == 1
        assert images.znodes.children(f"{IMAGES}/debian/builds") == [A]

    def test_build_that_is_locked(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """A builder that is removing it is not disturbed."""
        path = images.add_build("debian", A)
        with images.locked(f"debian/builds/{A}"):
            result = nodepool("dib-image-delete", f"debian-{A}")
        assert result.status == 1
        assert "is locked by another process" in result.err
        assert (images.read(path) or {})["state"] == "ready"

    def test_record_that_cannot_be_read(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        path = images.put(f"debian/builds/{A}", b"foreign")
        result = nodepool("dib-image-delete", f"debian-{A}")
        assert (result.status, result.out) == (1, "")
        assert "cannot be read" in result.err.splitlines()[-1]
        assert images.kazoo.get(path)[0] == b"foreign"

    def test_upload(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """rule R-13: only the upload becomes deleting."""
        build, path = images.add_build("debian", A), images.add_upload("debian", A)
        assert self.delete_upload(nodepool) == Result(0, "", "")
        record = images.read(path)
        assert record is not None
        assert (record["state"], record["external_id"]) == ("deleting", "ext")
        assert (images.read(build) or {})["state"] == "ready"
        assert images.znodes.children(f"{path}/lock") == []

    def test_upload_that_runs(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        images.add_build("debian", A)
        path = images.add_upload("debian", A, state="uploading")
        assert self.delete_upload(nodepool) == Result(1, "Cannot delete because image upload in progress\n", "")
        assert (images.read(path) or {})["state"] == "uploading"

    def test_upload_of_another_image(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """A build id of another image is said to be one."""
        images.add_build("debian", B)
        images.add_build("fedora", A)
        images.add_upload("fedora", A)
        result = self.delete_upload(nodepool)
        assert result == Result(1, "Image upload not found\n", f"nodepool: build {A} is one of fedora\n")
        assert images.znodes.children(f"{IMAGES}/debian/builds") == [B]

    @staticmethod
    def delete_upload(nodepool: CommandLine) -> Result:
        where = ["--provider", "lab", "--image", "debian", "--build-id", A, "--upload-id", "0000000001"]
        return nodepool("image-delete", *where)


class TestRollback:
    """rule R-18"""

    @pytest.fixture(autouse=True)
    def uploads(self, images: ImageZnodes) -> None:
        for build, moment in ((A, 100.0), (B, 200.0), (C, 300.0)):
            images.add_build("debian", build)
            images.add_upload("debian", build, state_time=moment)

    def test_earlier_upload_is_used_again(self, nodepool: CommandLine, images: ImageZnodes) -> None:
        """It is stored again with a new time, so released launchers follow it, too; twice goes back further."""
        for older, newer in ((B, C), (A, B)):
            result = nodepool("image-rollback", "lab", "debian")
            assert (result.status, result.err) == (0, "")
            assert f"lab uses upload 0000000001 of build debian-{older} again" in result.out
            rows = json.loads(nodepool("image-list", "--detail", "--format", "json").out)
            uses = {row["id"]: row["use"] for row in rows}
            assert (uses[older], uses[newer]) == ("current", "rolled back")
        path = f"{IMAGES}/debian/builds/{A}/providers/lab/images/0000000001"
        assert (images.read(path) or {})["state_time"] > 1000
        result = nodepool("image-rollback", "lab", "debian")
        assert (result.status, result.out) == (1, "")
        assert "providers with ready uploads: lab (3)" in result.err

    @pytest.mark.parametrize(
        ("arguments", "hint"),
        [(("odd", "debian"), "providers with ready uploads: lab (3)"), (("lab", "odd"), "images: debian")],
    )
    def test_mistakes(self, nodepool: CommandLine, arguments: tuple[str, str], hint: str) -> None:
        result = nodepool("image-rollback", *arguments)
        assert (result.status, result.out, len(result.err.splitlines())) == (1, "", 1)
        assert hint in result.err
