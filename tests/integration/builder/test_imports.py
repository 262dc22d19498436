# SPDX-License-Identifier: Apache-2.0
"""Imports of images, by the worker of a builder, from files and from a server with https (rules I)."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.builder import imports
from nodepool.builder.build import BuildQueue, BuildWorker
from nodepool.builder.imports import listed_checksum
from nodepool.model.image import ImageSource
from nodepool.model.record import InvalidRecord
from nodepool.zk import caches
from tests.support.build_site import BuildSite, in_background
from tests.support.image_server import ImageServer, sha256
from tests.support.image_site import IMAGE
from tests.support.tables import rows
from tests.support.wait import wait_for

#: A disk with a partition table, as far as anybody looks.
RAW = b"\0" * 510 + b"\x55\xaa" + bytes(range(256)) * 4000


@pytest.fixture(scope="module")
def qcow2(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("qcow2")
    (directory / "a.raw").write_bytes(RAW + bytes(-len(RAW) % 512))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", "a.raw", "a.qcow2"], cwd=directory, check=True)
    return (directory / "a.qcow2").read_bytes()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ImageServer]:
    made = ImageServer(tmp_path / "server")
    yield made
    made.stop()


@pytest.fixture
def importing(place: BuildSite, server: ImageServer) -> BuildSite:
    """The image is not built, and its imports trust the server."""
    image = place.site.config.diskimages[IMAGE]
    image.pause = True
    image.env_vars = {"REQUESTS_CA_BUNDLE": str(server.ca)}
    return place


def request(place: BuildSite, **wanted: str) -> None:
    place.site.store.request_build(IMAGE, ImageSource.of_request(wanted))


def test_import_is_a_build(importing: BuildSite, server: ImageServer, qcow2: bytes, tmp_path: Path) -> None:
    """I-1, I-2, I-4, I-8: of a file and of an address; record, files, checksums and log are those of a build."""
    place, file = importing, tmp_path / "made.img"
    place.once()
    assert place.builds() == []
    file.write_bytes(qcow2)
    server.files["made.qcow2"] = qcow2
    for wanted in ({"file": str(file)}, {"url": server.url("made.qcow2?secret"), "sha256": sha256(qcow2)}):
        request(place, **wanted)
        place.once()
        build = max(place.builds(), key=lambda build: build.state_time or 0)
        assert (build.state, build.formats, build.source) == ("ready", ["qcow2"], ImageSource.of_request(wanted).shown)
        assert (build.builder_id, build.username) == (place.site.builder_id, "zuul")
        path = place.site.files.path(IMAGE, build.key, "qcow2")
        assert path.read_bytes() == qcow2
        assert path.with_name(f"{path.name}.md5").read_text().split()[0] == hashlib.md5(qcow2).hexdigest()
        assert place.site.files.checksums(IMAGE, build.key, "qcow2").sha256 == sha256(qcow2)
        log = (place.directory / "logs" / f"{IMAGE}-{build.key}.log").read_text()
        assert log.endswith("Exit code: 0\n")
        assert "secret" not in log
        assert place.site.store.build_request(IMAGE) is None
    assert file.read_bytes() == qcow2
    assert list((place.site.files.directory / imports.PARTIAL).iterdir()) == []


@rows(__file__, "imports_that_cannot_succeed")
def test_imports_that_cannot_succeed(
    importing: BuildSite, server: ImageServer, qcow2: bytes, tmp_path: Path, case: str, problem: str, stays: bool
) -> None:
    """I-4, I-5: the record says so, and the reason is the last line of the log; nothing is left of the file."""
    place, data, wanted = importing, qcow2, {}
    backed = bytearray(qcow2)
    backed[15] = 104
    contents = {"wrong format": RAW, "no image": b"root:x:0:0\n" * 200, "packed": b"\xfd7zXZ\0" * 99, "backed": backed}
    data = bytes(contents.get(case, qcow2))
    server.files["image.qcow2"] = data
    checksum = sha256(b"" if case == "wrong checksum" else data)
    match case:
        case "not there":
            server.files.clear()
        case "too large":
            server.headers["Content-Length"] = str(imports.MOST_BYTES + 1)
        case "no room":
            server.headers["Content-Length"] = str(imports.MOST_BYTES)
        case "redirect to http":
            server.location = "http://localhost/image.qcow2"
        case "redirect to a file":
            server.location = "file:///etc/passwd"
        case "wish for another format":
            wanted["format"] = "raw"
        case "unknown authority":
            place.site.config.diskimages[IMAGE].env_vars = {"REQUESTS_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt"}
    request(place, url=server.url("image.qcow2"), sha256=checksum, **wanted)
    place.once()
    (build,) = place.builds()
    assert (build.state, build.formats) == ("failed", [])
    assert problem in place.log()
    assert place.files() == [imports.PARTIAL]
    assert (place.site.store.build_request(IMAGE) is not None) == stays
    if case not in ("no room", "unknown authority"):
        assert list((place.site.files.directory / imports.PARTIAL).iterdir()) == []


@pytest.mark.parametrize("ranges", [True, False])
def test_breaks(importing: BuildSite, server: ImageServer, qcow2: bytes, ranges: bool) -> None:
    """I-4: the rest is fetched where the server can send a rest, else all of it."""
    server.files["a.qcow2"], server.ranges = qcow2, ranges
    server.breaks = [100_000, 200_000]
    request(importing, url=server.url("a.qcow2"), sha256=sha256(qcow2))
    importing.once()
    assert importing.states() == ["ready"], importing.log()
    assert [name for name, _ in server.asked] == ["a.qcow2"] * 3
    begins = [int(asked[6:-1]) if asked else 0 for _, asked in server.asked]
    assert 0 == begins[0] < begins[1] <= 100_000


def test_what_an_earlier_attempt_left(
    importing: BuildSite, server: ImageServer, qcow2: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """I-4: it is used if it is of the same file; if it is of another one, all is fetched again."""
    directory, image = importing.site.files.directory / imports.PARTIAL, importing.site.config.diskimages[IMAGE]
    server.files["a.qcow2"] = qcow2
    for good in (True, False):
        server.go_on.clear()
        server.pause_at, image.build_timeout = 200_000, 3
        request(importing, url=server.url("a.qcow2"), sha256=sha256(qcow2))
        importing.once()
        assert "it took longer than build-timeout" in caplog.text
        (part,) = (path for path in directory.iterdir() if path.suffix != ".json")
        left = part.stat().st_size
        if not good:
            part.write_bytes(b"x" * left)
        server.asked.clear()
        server.pause_at, image.build_timeout = None, 60
        server.go_on.set()
        request(importing, url=server.url("a.qcow2"), sha256=sha256(qcow2))
        importing.once()
        assert "ready" in importing.states()
        assert [asked for _, asked in server.asked] == [f"bytes={left}-", *([] if good else [""])]
    assert list(directory.iterdir()) == []


def test_other_formats_are_made(importing: BuildSite, qcow2: bytes, tmp_path: Path) -> None:
    """I-6: qemu-img makes what providers want; where it cannot, the reason names the provider."""
    image, file = importing.site.config.diskimages[IMAGE], tmp_path / "a.qcow2"
    file.write_bytes(qcow2)
    image.image_types = {"raw", "vmdk"}
    request(importing, file=str(file))
    importing.once()
    (build,) = importing.builds()
    assert (build.state, build.formats) == ("ready", ["raw", "vmdk"]), importing.log()
    raw = importing.site.files.path(IMAGE, build.key, "raw").read_bytes()
    assert raw.startswith(RAW)
    shutil.copy(importing.site.files.path(IMAGE, build.key, "vmdk"), tmp_path / "a.vmdk")
    request(importing, file=str(tmp_path / "a.vmdk"))
    importing.once()
    log = max((importing.directory / "logs").iterdir(), key=lambda path: path.stat().st_mtime_ns).read_text()
    assert "raw cannot be made of vmdk" in log
    assert importing.site.store.build_request(IMAGE) is None


def test_request_is_for_one_import(importing: BuildSite, tmp_path: Path, qcow2: bytes) -> None:
    """I-3: what is asked for while something else is built or imported comes afterwards."""
    importing.site.config.diskimages[IMAGE].pause = False
    file = tmp_path / "a.qcow2"
    file.write_bytes(qcow2)
    importing.script(f'until [ -e {tmp_path}/go ]; do sleep 0.02; done; fake "$@"')
    importing.site.store.request_build(IMAGE)
    worker = in_background(importing.once)
    wait_for("the build", importing.builds)
    request(importing, file=str(file))
    (tmp_path / "go").touch()
    worker.join(60)
    importing.once()
    assert sorted(str(build.source) for build in importing.builds()) == sorted(["None", str(file)])
    assert importing.site.store.build_request(IMAGE) is None


def test_file_of_another_host(importing: BuildSite) -> None:
    """I-2: the request stays; what else is due is built."""
    request(importing, file="/nowhere/a.qcow2")
    importing.once()
    assert importing.builds() == []
    assert importing.site.shared.lacking_files == {IMAGE: "/nowhere/a.qcow2"}
    importing.site.config.diskimages[IMAGE].pause = False
    importing.once()
    assert importing.states() == ["ready"]
    assert importing.site.store.build_request(IMAGE) is not None


def test_source_of_a_vendor(
    importing: BuildSite, server: ImageServer, qcow2: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """I-7: fetched once, and again when the list has another checksum, or a build was asked for."""
    image = importing.site.config.diskimages[IMAGE]
    image.pause, image.source_refresh = False, 60
    image.source_url, image.source_checksum_url = server.url("cloud.qcow2"), server.url("SUMS")

    def publish(data: bytes) -> str:
        digest = hashlib.sha512(data).hexdigest()
        server.files |= {"cloud.qcow2": data, "SUMS": f"{digest}  cloud.qcow2\n".encode()}
        return f"sha512:{digest}"

    def asked_later() -> list[str]:
        """Which files a builder asks for that starts when the newest build is older than ``refresh``."""
        for build in importing.builds():
            build.state_time = (build.state_time or 0) - 61
            importing.site.store.store_build(build)
        importing.worker = BuildWorker(1, importing.site.shared, BuildQueue())
        server.asked.clear()
        importing.once()
        importing.once()
        return [name for name, _ in server.asked]

    checksum = publish(qcow2)
    importing.once()
    (build,) = importing.builds()
    assert (build.state, build.source, build.source_checksum) == ("ready", server.url("cloud.qcow2"), checksum)
    assert asked_later() == ["SUMS"]
    del server.files["SUMS"]
    assert asked_later() == ["SUMS"]
    assert "the server answers 404" in caplog.text
    # Between the image and its list: neither is taken.
    publish(qcow2 + b"x")
    server.files["cloud.qcow2"] = qcow2
    assert asked_later() == ["SUMS", "SUMS", "cloud.qcow2"]
    assert sorted(importing.states()) == ["failed", "ready"]
    checksum = publish(qcow2 + b"x")
    assert asked_later() == ["SUMS", "SUMS", "cloud.qcow2"]
    assert checksum in {build.source_checksum for build in importing.builds() if build.state == "ready"}
    importing.site.store.request_build(IMAGE)
    importing.once()
    assert importing.states().count("ready") == 3


def test_bad_request_in_zookeeper(importing: BuildSite, caplog: pytest.LogCaptureFixture) -> None:
    """I-1: it is logged, and is a request for a build; released builders know no other."""
    importing.site.config.diskimages[IMAGE].pause = False
    importing.site.store.request_build(IMAGE)
    importing.site.client.kazoo.set(caches.build_request(IMAGE), b'{"url": "http://example.com"}')
    importing.once()
    assert importing.states() == ["ready"]
    assert "url must begin with https://" in caplog.text


@rows(__file__, "lists_of_checksums")
def test_lists_of_checksums(line: str, expected: str | None) -> None:
    """I-7: the styles of vendors."""
    text = f"# a comment\n{line}\n".replace("S256", "a" * 64).replace("S512", "B" * 128)
    assert (listed_checksum(text, "a.qcow2") or "").replace("a" * 64, "S256").replace("b" * 128, "S512") == expected


@rows(__file__, "requests_that_are_refused")
def test_requests_that_are_refused(wanted: dict[str, str], problem: str) -> None:
    """I-1: commands and API refuse them with the same words."""
    with pytest.raises(InvalidRecord, match=problem):
        ImageSource.of_request(wanted)
    assert json.dumps(wanted)
