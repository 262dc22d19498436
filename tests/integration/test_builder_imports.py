# SPDX-License-Identifier: Apache-2.0
"""``nodepool image-import`` with ``nodepool-builder`` as a process that is killed in every step."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.build_journal import processes_of
from tests.support.command_line import CommandLine
from tests.support.fake_builder import IMAGE, FakeBuilder
from tests.support.image_server import ImageServer, sha256
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ImageServer]:
    made = ImageServer(tmp_path / "server")
    yield made
    made.stop()


@pytest.fixture
def image(tmp_path: Path) -> bytes:
    (tmp_path / "a.raw").write_bytes(b"\0" * 510 + b"\x55\xaa" + b"nodepool" * (MIB // 8) * 30)
    return (tmp_path / "a.raw").read_bytes()


@pytest.fixture
def builder(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, server: ImageServer
) -> Iterator[FakeBuilder]:
    """The image is only imported."""
    settings = {"formats": ["raw"], "pause": True, "env-vars": {"REQUESTS_CA_BUNDLE": str(server.ca)}}
    made = FakeBuilder(tmp_path / "builder", zookeeper, chroot, znodes, images={IMAGE: settings}, session_seconds=3)
    yield made
    made.end()


@pytest.mark.parametrize("stop_at", ["before its first byte", "in the middle", "at its end", "in a copy"])
def test_builder_is_killed(
    builder: FakeBuilder, server: ImageServer, image: bytes, tmp_path: Path, stop_at: str
) -> None:
    """I-4, I-8: the next one goes on; one build is ready, and nothing else is left: files, records, processes."""
    server.files["a.raw"] = image
    server.pause_at = {"before its first byte": 0, "in the middle": 16 * MIB}.get(stop_at)
    wanted = ["--url", server.url("a.raw"), "--sha256", sha256(image)]
    builder.start()
    builder.wait_ready()
    run = CommandLine(builder.config_path)
    refused = run("image-import", IMAGE, "--url", server.url("a.raw"))
    assert (refused.status, refused.err) == (1, "a url needs a sha256\n")
    done = run("image-import", IMAGE, *(["--file", str(tmp_path / "a.raw")] if stop_at == "in a copy" else wanted))
    assert (done.status, done.out) == (0, "")
    wait_for("it runs", server.waiting.is_set if server.pause_at is not None else builder.builds)
    if stop_at == "at its end":
        wait_for("it is fetched", lambda: server.asked)
    builder.kill()
    server.pause_at = None
    builder.start()
    (ready,) = builder.wait_state("ready")
    # Whatever was ready when the first one was killed is not imported again.
    wait_for("the request is served", lambda: not builder.requested() or len(builder.builds()) > 1)
    wait_for("one build is left", lambda: [one["state"] for one in builder.builds().values()] == ["ready"])
    assert builder.builds()[ready]["source"] in (server.url("a.raw"), str(tmp_path / "a.raw"))
    if stop_at == "in the middle":
        assert [asked for _, asked in server.asked][-1].startswith("bytes=")
    names = {f"{IMAGE}-{ready}.raw{end}" for end in ("", ".md5", ".sha256")}
    wait_for("only its files are left", lambda: {one for one in builder.files() if IMAGE in one} == names)
    assert (builder.images_dir / f"{IMAGE}-{ready}.raw").read_bytes() == image
    assert list((builder.images_dir / ".imports").iterdir()) == []
    assert processes_of(builder.temporary) == []


def test_what_operators_see(builder: FakeBuilder, server: ImageServer, tmp_path: Path) -> None:
    """I-2, I-5: where it waits, what it was made of, and why it failed."""
    run, file = CommandLine(builder.config_path), tmp_path / "image.qcow2"
    builder.start()
    builder.wait_ready()
    assert run("image-import", IMAGE, "--file", str(file)).status == 0
    text = f"an import of {file} was asked for"
    wait_for("explain says so", lambda: "no builder has the file" in run("explain", IMAGE).out)
    assert text in run("explain", IMAGE).out
    file.write_bytes(b"no image" * 100)
    failed = run("image-import", IMAGE, "--file", str(file), "--wait")
    assert failed.status == 1
    assert "failed" in failed.err
    wait_for("its request is removed", lambda: not builder.requested())
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(file), "1M"], check=True)
    done = run("image-import", IMAGE, "--file", str(file), "--wait")
    assert (done.status, "is ready" in done.out) == (0, True), done
    (build,) = json.loads(run("dib-image-list", "--detail", "-o", "json").out)
    assert (build["source"], build["formats"], build["state"]) == (str(file), ["raw"], "ready")
    assert f"imported from {file}" in run("explain", IMAGE).out
