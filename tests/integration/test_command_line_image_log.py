# SPDX-License-Identifier: Apache-2.0
"""``nodepool image-log``, against a real ZooKeeper (reference/commands 2)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import CommandLine, Result
from tests.support.image_znodes import ImageZnodes
from tests.support.pool_znodes import PoolZnodes

#: Ids of builds.
A, B = (letter * 32 for letter in "ab")


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return ImageZnodes(znodes)


@pytest.fixture
def logs(nodepool: CommandLine, tmp_path: Path) -> Path:
    """The directory of the logs, with two of an image and one of an image with a longer name."""
    directory = tmp_path / "logs"
    directory.mkdir()
    settings = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    nodepool.config.write_text(yaml.safe_dump({**settings, "build-log-dir": str(directory)}), encoding="utf-8")
    for age, name in enumerate((f"debian-12-{A}", f"debian-{B}", f"debian-{A}")):
        path = directory / f"{name}.log"
        path.write_text(f"{name}\nExit code: 0\n", encoding="utf-8")
        os.utime(path, (1000 - age, 1000 - age))
    return directory


@pytest.mark.parametrize(
    ("name", "log"),
    [("debian", f"debian-{B}"), (f"debian-{A}", f"debian-{A}"), ("debian-12", f"debian-12-{A}")],
)
def test_log(nodepool: CommandLine, logs: Path, name: str, log: str) -> None:
    """Of a build, or of the newest build of exactly this image."""
    assert (logs / f"{log}.log").exists()
    assert nodepool("image-log", name) == Result(0, f"{log}\nExit code: 0\n", "")


def test_follow(nodepool: CommandLine, logs: Path, images: ImageZnodes) -> None:
    """Ends when the build has ended, with all that was written."""
    images.add_build("debian", B, state="building")
    process = nodepool.start("image-log", "debian", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline() == f"debian-{B}\n"
    with (logs / f"debian-{B}.log").open("a", encoding="utf-8") as log:
        log.write("more\n")
    assert [process.stdout.readline() for _ in range(2)] == ["Exit code: 0\n", "more\n"]
    with (logs / f"debian-{B}.log").open("a", encoding="utf-8") as log:
        log.write("the end\n")
    images.add_build("debian", B)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "the end\n", "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fedora", "the builds were made on: b.example"),
        (f"fedora-{A}", "the builds were made on: b.example"),
        (f"fedora-{B}", f"builds of fedora: fedora-{A}"),
        ("nonsense", "images: fedora"),
        ("../logs/debian", "images: fedora"),
    ],
)
def test_log_that_is_not_here(nodepool: CommandLine, logs: Path, images: ImageZnodes, name: str, hint: str) -> None:
    images.add_build("fedora", A)
    assert nodepool("image-log", name) == Result(1, "", f"no log of {name} in {logs}; {hint}\n")
