# SPDX-License-Identifier: Apache-2.0
"""``nodepool export-image-data`` and ``import-image-data``, against a real ZooKeeper (reference/zookeeper 6.4)."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from nodepool.zk import paths
from tests.support.command_line import CommandLine, Result
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.pool_znodes import PoolZnodes

#: Ids of builds: of today, and of an old release.
A, OLD = "a" * 32, "0000000003"
#: Of an installation.
OURS = "0123456789abcdef"


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return ImageZnodes(znodes)


def make_installation(images: ImageZnodes, its_id: str) -> None:
    images.kazoo.create(paths.INSTALLATION, json.dumps({"id": its_id, "adopted": []}).encode(), makepath=True)


@pytest.fixture
def export(tmp_path: Path, nodepool: CommandLine, images: ImageZnodes) -> Path:
    """An export of two images, which are removed then."""
    images.add_build("debian", A, of_tomorrow=[1])
    images.add_upload("debian", A, number=1200)
    images.put("debian/pause")
    images.put("debian/request-build")
    images.put("fedora/builds/" + OLD, b'{"state": "ready", "state_time": 1.5}')
    images.add_upload("fedora", OLD, number=2)
    path = tmp_path / "export.json"
    path.write_text("x" * 10000, encoding="utf-8")
    assert nodepool("export-image-data", str(path)) == Result(0, "", "")
    images.kazoo.delete(IMAGES, recursive=True)
    return path


def test_export(export: Path) -> None:
    """Rule F-4. One object; nothing of what was in the file is left; only the owner reads it."""
    data = json.loads(export.read_text(encoding="utf-8"))
    assert stat.S_IMODE(export.stat().st_mode) == 0o600
    assert sorted(data) == [
        f"{IMAGES}/debian/builds/{A}",
        f"{IMAGES}/debian/builds/{A}/providers/lab/images/0000001200",
        f"{IMAGES}/debian/pause",
        f"{IMAGES}/fedora/builds/{OLD}",
        f"{IMAGES}/fedora/builds/{OLD}/providers/lab/images/0000000002",
    ]
    assert data[f"{IMAGES}/debian/pause"] == ""
    assert data[f"{IMAGES}/fedora/builds/{OLD}"] == '{"state": "ready", "state_time": 1.5}'


def test_export_that_cannot_be_written(nodepool: CommandLine, export: Path) -> None:
    """The operator reads the name that was given, and why."""
    path = export.parent / "nothing" / "export"
    result = nodepool("export-image-data", str(path))
    assert result == Result(1, "", f"{path} cannot be written: No such file or directory\n")


def test_import(nodepool: CommandLine, images: ImageZnodes, export: Path) -> None:
    """Rule F-4. All comes back as it was, and uploads that are made later get other numbers. Twice is fine."""
    for _ in range(2):
        assert nodepool("import-image-data", str(export)) == Result(0, "", "")
    for path, text in json.loads(export.read_text(encoding="utf-8")).items():
        assert images.kazoo.get(path)[0].decode() == text
    uploads = f"{IMAGES}/debian/builds/{A}/providers/lab/images"
    assert images.znodes.children(uploads) == ["0000001200"]
    later = images.kazoo.create(f"{uploads}/", sequence=True)
    assert int(later.rpartition("/")[2]) > 1200


@pytest.mark.parametrize("there", [None, "b" * 16])
def test_installation(nodepool: CommandLine, images: ImageZnodes, tmp_path: Path, there: str | None) -> None:
    """D-10. The id comes back, or is adopted where there is another one; records stay as they are to the byte."""
    make_installation(images, OURS)
    build = images.put("debian/builds/" + A, b'{"state": "ready",  "state_time": 1.5}')
    images.add_upload("debian", A)
    path = tmp_path / "export.json"
    assert nodepool("export-image-data", str(path)) == Result(0, "", "")
    images.kazoo.delete(IMAGES, recursive=True)
    images.kazoo.delete(paths.INSTALLATION)
    if there is not None:
        make_installation(images, there)
    for _ in range(2):
        assert nodepool("import-image-data", str(path)) == Result(0, "", "")
    found = json.loads(images.kazoo.get(paths.INSTALLATION)[0])
    assert found == ({"id": OURS, "adopted": []} if there is None else {"id": there, "adopted": [OURS]})
    assert images.kazoo.get(build)[0] == b'{"state": "ready",  "state_time": 1.5}'


def test_export_after_an_import_of_an_earlier_release(
    nodepool: CommandLine, images: ImageZnodes, tmp_path: Path
) -> None:
    """It left the id of the export in its record; the one of today is exported."""
    make_installation(images, OURS)
    build = images.put("debian/builds/" + A, b'{"installation_id":"%s","state": "ready"}' % (b"b" * 16))
    assert nodepool("export-image-data", str(tmp_path / "export")).status == 0
    exported = json.loads((tmp_path / "export").read_text(encoding="utf-8"))
    assert exported == {build: f'{{"installation_id":"{OURS}","state": "ready"}}'}


def test_import_beside_other_records(nodepool: CommandLine, images: ImageZnodes, export: Path) -> None:
    """What is there and differs is kept, unless the operator says otherwise; other images stay in any case."""
    path = images.add_build("debian", A, state="deleting")
    other = images.add_build("gentoo", A)
    result = nodepool("import-image-data", str(export))
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        f"ZooKeeper has other data in {IMAGES}/debian/builds/{A}; nothing was imported (--replace overwrites)\n"
    )
    assert images.znodes.children(IMAGES) == ["debian", "gentoo"]
    assert nodepool("import-image-data", str(export), "--replace").status == 0
    assert (images.read(path) or {})["state"] == "ready"
    assert images.read(other) is not None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/nodepool/nodes/0000000001", "{}"),
        (f"{IMAGES}/debian/builds/b", "{}"),
        (f"{IMAGES}/debian/builds/b", '{"state": "lost"}'),
        (f"{IMAGES}/none/builds/b/providers/lab/images/0000000001", '{"state": "ready"}'),
        (f"{IMAGES}/debian/builds/b", 7),
    ],
)
def test_bad_data_are_refused_before_anything_is_written(
    nodepool: CommandLine, images: ImageZnodes, export: Path, path: str, text: object
) -> None:
    data = json.loads(export.read_text(encoding="utf-8"))
    export.write_text(json.dumps({**data, path: text}), encoding="utf-8")
    result = nodepool("import-image-data", str(export))
    assert (result.status, result.out) == (1, "")
    assert path in result.err
    assert "nothing was imported" in result.err
    assert len(result.err.splitlines()) == 1
    assert images.znodes.children(IMAGES) == []


@pytest.mark.parametrize("text", ["", "no JSON", "[]"])
def test_file_that_is_no_export(nodepool: CommandLine, tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    result = nodepool("import-image-data", str(path))
    assert (result.status, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert str(path) in result.err


def test_file_that_is_not_there(nodepool: CommandLine, tmp_path: Path) -> None:
    for command in (["import-image-data", str(tmp_path / "none")], ["export-image-data", str(tmp_path / "none" / "x")]):
        result = nodepool(*command)
        assert (result.status, result.out, len(result.err.splitlines())) == (1, "", 1)
        assert "No such file or directory" in result.err


def test_records_that_cannot_be_read_are_not_exported(
    nodepool: CommandLine, images: ImageZnodes, tmp_path: Path
) -> None:
    """An export can always be imported; what is left out is told."""
    good = images.add_build("debian", A)
    images.put("debian/builds/bad", b"\xff")
    images.add_upload("debian", "bad")
    result = nodepool("export-image-data", str(tmp_path / "export"))
    assert result.status == 0
    assert result.err.count("Not exported") == 2
    assert list(json.loads((tmp_path / "export").read_text(encoding="utf-8"))) == [good]


def test_import_beside_a_builder(nodepool: CommandLine, images: ImageZnodes, export: Path) -> None:
    images.add_builder("b.example")
    result = nodepool("import-image-data", str(export))
    assert result.status == 0
    assert "A builder is running on b.example" in result.err
