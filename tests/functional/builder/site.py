# SPDX-License-Identifier: Apache-2.0
"""Where a builder works in a test: its configuration, its directories, its process, and what it stored."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.image_znodes import Build, ImageZnodes, Upload
from tests.support.launcher import OUR_BUILDER, BuilderProcess
from tests.support.launcher_config import Provider, write_config
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@dataclass(frozen=True)
class Remains:
    """Mounts, loop devices and processes that have to do with one directory, and what lies in it."""

    mounts: list[str]
    loop_devices: list[str]
    processes: list[str]
    files: list[str]

    def __bool__(self) -> bool:
        return any((self.mounts, self.loop_devices, self.processes, self.files))


def remains(directory: Path) -> Remains:
    """What is there of builds whose temporary files are below a directory."""
    prefix = f"{directory}/"
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], capture_output=True, text=True, check=True
    )
    return Remains(
        [mount for mount in mounts if mount.startswith(prefix)],
        [line for line in listed.stdout.splitlines() if prefix in line],
        [line for line in _command_lines() if prefix in line],
        sorted(path.name for path in directory.iterdir()),
    )


def _command_lines() -> list[str]:
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            # It has ended.
            continue
        lines.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return lines


ELEMENTS = Path(__file__).parent / "elements"
#: A build of `SMALL` takes some seconds; the machine may be busy.
BUILD_SECONDS = 180.0
#: Root file system of a few programs of this machine, see `ELEMENTS`.
SMALL: Mapping[str, Any] = {
    "name": "small",
    "dib-cmd": "disk-image-create -n",
    "elements": ["busybox-root"],
    "env-vars": {"DIB_JOURNAL_SIZE": "4", "DIB_IMAGE_EXTRA_SIZE": "16"},
}


class BuilderSite:
    """One builder's corner of the world.

    :param directory: empty; everything is below it.
    """

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, chroot: str) -> None:
        self.directory = directory
        self.images = directory / "images"
        self.logs = directory / "logs"
        self.temporary = directory / "tmp"
        self.config = directory / "builder.yaml"
        self.records = ImageZnodes(zookeeper.plain_hosts(chroot))
        self.builders: list[BuilderProcess] = []
        self._zookeeper = zookeeper
        self._chroot = chroot
        for path in (self.images, self.logs, self.temporary, directory / "elements"):
            path.mkdir()
        # With rights that do not depend on the checkout's.
        shutil.copytree(ELEMENTS, directory / "elements", dirs_exist_ok=True)

    def configure(self, images: Iterable[Mapping[str, Any]], providers: Iterable[Provider] = ()) -> dict[str, Any]:
        """Writes the configuration; returns the keys that a launcher needs, too."""
        extra = {
            "images-dir": str(self.images),
            "build-log-dir": str(self.logs),
            "elements-dir": str(self.directory / "elements"),
            "diskimages": [dict(image) for image in images],
        }
        write_config(self.config, self._zookeeper, self._chroot, providers, extra=extra)
        self._own_certificates()
        return extra

    def _own_certificates(self) -> None:
        """Other users may run the builder; those of the server are root's."""
        config = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        for name, path in config["zookeeper-tls"].items():
            config["zookeeper-tls"][name] = str(shutil.copyfile(path, self.directory / f"{name}.pem"))
        self.config.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")

    def start(self, *prefix: str, **environment: str) -> BuilderProcess:
        """Starts a builder. :param prefix: a command that runs it. :param environment: what it has beside ours."""
        log = self.directory / f"builder{len(self.builders) + 1}.log"
        home = {"HOME": str(self.directory), "TMPDIR": str(self.temporary)}
        command = [*prefix, *OUR_BUILDER]
        builder = BuilderProcess(self.config, log, command, debug=True, environment={**home, **environment})
        self.builders.append(builder)
        builder.start()
        return builder

    def stop(self) -> None:
        """Ends every builder; blocks."""
        for builder in self.builders:
            if builder.running:
                builder.stop(seconds=90)

    # -- what is stored

    def builds(self, image: str, state: str) -> list[Build]:
        return [build for build in self.records.image(image).builds if build.state == state]

    def wait_build(self, image: str, state: str = "ready", seconds: float = BUILD_SECONDS) -> Build:
        """Blocks until there is a build in a state; returns the newest."""

        def found() -> Build | None:
            self.check()
            return next(iter(self.builds(image, state)[::-1]), None)

        build = wait_for(f"a build of {image} is {state}", found, seconds)
        assert build is not None
        return build

    def wait_upload(self, image: str, provider: str, seconds: float = BUILD_SECONDS) -> Upload:
        """Blocks until an upload is ready."""

        def found() -> Upload | None:
            self.check()
            return self.records.image(image).current(provider)

        upload = wait_for(f"{image} is ready in {provider}", found, seconds)
        assert upload is not None
        return upload

    def check(self) -> None:
        """:raises RuntimeError: a builder has ended."""
        if not any(builder.running for builder in self.builders):
            raise RuntimeError(f"no builder runs:\n{self.builders[-1].log_text()[-4000:]}")

    # -- what is on the disk

    def file(self, build: Build, image_format: str) -> Path:
        return self.images / f"{build.image}-{build.build_id}.{image_format}"

    def build_log(self, build: Build) -> str:
        path = self.logs / f"{build.image}-{build.build_id}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def sums(self, build: Build, image_format: str) -> dict[str, str]:
        """Checksums of a file as we calculate them, after a look that those beside it are the same."""
        file = self.file(build, image_format)
        content = file.read_bytes()
        sums = {
            "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, value in sums.items():
            assert file.with_name(f"{file.name}.{name}").read_text(encoding="ascii").split()[0] == value
        return sums

    def remains(self) -> Remains:
        """What builds have on this machine now."""
        return remains(self.temporary)

    def wait_nothing_remains(self) -> None:
        """Blocks until no mount, loop device, process or temporary file of a build is there."""

        def nothing() -> bool:
            left = self.remains()
            assert not left, f"left: {left}"
            return True

        wait_for("nothing of a build is left", nothing)
