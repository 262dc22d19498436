# SPDX-License-Identifier: Apache-2.0
"""Commands for images, ours beside those of the released Nodepool 11.0.0 on one ZooKeeper (reference/commands 2)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.zk import paths
from tests.migration.conftest import OLD, A, B, run_released
from tests.support.command_line import CommandLine, Result
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.launcher_config import StaticHost, StaticProvider, write_config
from tests.support.zookeeper import ZooKeeperServer

#: Ages go on while the commands run.
AGE = re.compile(r"\d\d:\d\d:\d\d:\d\d")

Command = Callable[..., Result]


@pytest.fixture
def ours(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> CommandLine:
    file = tmp_path / "nodepool.yaml"
    write_config(file, zookeeper, chroot, [StaticProvider([StaticHost("127.1.0.1")], name="lab")])
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    settings["diskimages"] = [
        {"name": "debian", "formats": ["raw"]},
        {"name": "base", "abstract": True},
        {"name": "resting", "pause": True, "formats": ["raw"]},
    ]
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return CommandLine(file)


@pytest.fixture
def released(ours: CommandLine) -> Command:
    """The released command line, with the same configuration."""
    return partial(run_released, ours.config)


def without_ages(text: str) -> str:
    return AGE.sub("AGE", text)


@pytest.mark.parametrize("command", [["image-list"], ["dib-image-list"], ["image-status"], ["info", "lab"]])
def test_tables(ours: CommandLine, released: Command, images: ImageZnodes, command: list[str]) -> None:
    """The same headers, cells and order."""
    with images.locked("debian/builds"):
        one, other = released(*command), ours.within(*command)
    assert without_ages(other.out) == without_ages(one.out)
    assert (one.status, other.status, len(one.out.splitlines()) > 4) == (0, 0, True)


@pytest.mark.parametrize(
    "command",
    [
        ["dib-image-delete", f"debian-{B}"],
        ["dib-image-delete", "debian-zz"],
        ["dib-image-delete", f"fedora-40-{B}"],
        *(
            ["image-delete", "--provider", "lab", "--image", "debian", "--build-id", build, "--upload-id", upload]
            for build, upload in ((OLD, "0000000012"), (A, "0000000001"), (B, "0000000001"))
        ),
    ],
)
def test_refusals(ours: CommandLine, released: Command, images: ImageZnodes, command: list[str]) -> None:
    """The same text; ours has status 1, and a line on standard error for what there is."""
    before = everything(images)
    one, other = released(*command), ours.within(*command)
    assert (one.out, one.status) == (other.out, 0)
    assert other.status == 1
    assert everything(images) == before


@pytest.mark.parametrize("image", ["none-such", "base", "resting"])
def test_builds_that_are_refused(ours: CommandLine, released: Command, images: ImageZnodes, image: str) -> None:
    """The same text begins the line."""
    one, other = released("image-build", image), ours.within("image-build", image)
    text = one.err.splitlines()[-1].removeprefix("Exception: ")
    assert other.err.startswith(text)
    assert (one.status, other.status, one.out, other.out) == (1, 1, "", "")


@pytest.mark.parametrize(
    "command",
    [
        ["image-build", "debian"],
        ["image-pause", "debian"],
        ["image-unpause", "fedora-40"],
        ["dib-image-delete", f"fedora-40-{A}"],
        ["image-delete", "--provider", "lab", "--image", "debian", "--build-id", A, "--upload-id", "0000000007"],
    ],
)
def test_changes(ours: CommandLine, released: Command, images: ImageZnodes, command: list[str]) -> None:
    """Both leave the same behind, and print nothing; the released one may log that it connects once more.

    Ours also writes who deletes (`deleted_by`): all readers ignore keys that they do not know.
    """
    images.add_builder()
    results, left = [], []
    for run in (released, ours.within):
        for name in images.children(IMAGES):
            images.kazoo.delete(f"{IMAGES}/{name}", recursive=True)
        again(images)
        results.append(run(*command))
        left.append(everything(images))
    printed = [line for line in results[0].err.splitlines() if "Retrying zookeeper connection" not in line]
    assert (results[0].status, results[0].out, printed) == (0, "", [])
    assert results[1] == Result(0, "", "")
    actors = [record.pop("deleted_by") for record in left[1].values() if record and "deleted_by" in record]
    assert len(actors) == ("delete" in command[0])
    assert left[0] == left[1]


def test_exports_are_the_same_and_each_reads_the_other_one(
    ours: CommandLine, released: Command, images: ImageZnodes, tmp_path: Path
) -> None:
    """Rule F-4, reference/zookeeper 6.4."""
    files = [str(tmp_path / name) for name in ("one", "other")]
    before = everything(images)
    assert [released("export-image-data", files[0]).status, ours.within("export-image-data", files[1]).status] == [0, 0]
    texts = [yaml.safe_load(Path(file).read_text(encoding="utf-8")) for file in files]
    assert texts[0] == texts[1]
    for run, file in ((released, files[1]), (ours, files[0])):
        images.kazoo.delete(IMAGES, recursive=True)
        assert run("import-image-data", file).status == 0
        after = everything(images)
        assert after == {path: before[path] for path in after}
        assert set(texts[0]) <= set(after)
        uploads = f"{IMAGES}/debian/builds/{A}/providers/lab/images"
        later = images.kazoo.create(f"{uploads}/", sequence=True)
        assert int(later.rpartition("/")[2]) > 7


def test_released_import_of_an_export_with_the_id_of_an_installation(
    ours: CommandLine, released: Command, images: ImageZnodes, tmp_path: Path
) -> None:
    """D-10, reference/zookeeper 6.4. The released commands ignore the id; ours shows the same."""
    images.kazoo.create(paths.INSTALLATION, b'{"id":"0123456789abcdef","adopted":[]}')
    file = str(tmp_path / "export")
    assert ours.within("export-image-data", file).status == 0
    assert '"0123456789abcdef' in json.loads(Path(file).read_text(encoding="utf-8"))[f"{IMAGES}/debian/builds/{A}"]
    before = [without_ages(released(*command).out) for command in (["image-list"], ["dib-image-list"])]
    images.kazoo.delete(IMAGES, recursive=True)
    assert released("import-image-data", file).status == 0
    for run in (released, ours.within):
        assert [without_ages(run(*command).out) for command in (["image-list"], ["dib-image-list"])] == before


def again(images: ImageZnodes) -> None:
    """What `test_changes` begins with."""
    images.add_build("debian", A)
    images.add_upload("debian", A, "lab", 7)
    images.add_build("fedora-40", A)
    images.put("fedora-40/pause")


def everything(images: ImageZnodes, path: str = IMAGES) -> dict[str, Any]:
    """Path -> record of every znode with data, without times; lock directories are left out."""
    found: dict[str, Any] = {}
    for name in images.children(path):
        if name != "lock":
            below = f"{path}/{name}"
            if name in ("pause", "request-build"):
                found[below] = ""
            elif record := images.read(below):
                found[below] = {key: value for key, value in record.items() if key != "state_time"}
            found |= everything(images, below)
    return found
