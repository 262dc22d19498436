# SPDX-License-Identifier: Apache-2.0
"""Images and containers of Debian's ``buildah``: without a daemon, a registry or namespaces of the kernel."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.command_line import Result
from tests.support.process import ChildProcess

ROOT: Final = Path(__file__).parents[3]
#: One command of buildah, also a build with all its packages; seconds.
DEADLINE_SECONDS: Final = 1800.0


class Buildah:
    """A storage of images in a directory.

    :param directory: for the storage and for outputs; several gigabytes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        storage = f'[storage]\ndriver = "vfs"\nrunroot = "{directory}/run"\ngraphroot = "{directory}/storage"\n'
        (directory / "storage.conf").write_text(storage, encoding="utf-8")
        self.environment = {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "STORAGE_DRIVER": "vfs",
        }
        self._count = 0

    def __call__(self, *arguments: str) -> str:
        """Run ``buildah``; returns its output. Blocks. Raises AssertionError: it failed."""
        done = self.result(*arguments)
        assert done.status == 0, f"buildah {' '.join(arguments)}:\n{done.out[-4000:]}\n{done.err[-4000:]}"
        return done.out.strip()

    def result(self, *arguments: str) -> Result:
        """The same, however it ends."""
        # In files: with pipes the last lines are lost now and then.
        self._count += 1
        files = [self.directory / f"{self._count}.{name}" for name in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            done = subprocess.run(
                ["buildah", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
                cwd=ROOT,
                timeout=DEADLINE_SECONDS,
                check=False,
            )
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
        return Result(done.returncode, *texts)

    def take(self, archive: Path, name: str) -> None:
        """Take an image out of an OCI archive."""
        self("tag", self("pull", "--quiet", f"oci-archive:{archive}"), f"localhost/{name}")

    def settings(self, image: str) -> dict[str, Any]:
        """What an image says: ``Cmd``, ``Entrypoint``, ``User`` and more."""
        told: dict[str, Any] = json.loads(self("inspect", "--type=image", image))
        config: dict[str, Any] = told["Docker"]["config"]
        return config

    @contextmanager
    def container(self, image: str, volumes: Mapping[Path, str] | None = None) -> Iterator[Container]:
        """A container of an image.

        :param volumes: directory of this machine -> where it is in the container.
        """
        name = self("from", "--pull-never", f"localhost/{image}")
        options = [f"--volume={source}:{target}" for source, target in (volumes or {}).items()]
        try:
            yield Container(self, name, options)
        finally:
            self("rm", name)


class Container:
    """A file system in which programs run, with the network of this machine."""

    def __init__(self, buildah: Buildah, name: str, options: Sequence[str]) -> None:
        self._buildah = buildah
        self._name = name
        self._options = options

    def __call__(self, *command: str) -> Result:
        """Run a command to its end."""
        return self._buildah.result("run", *self._options, self._name, "--", *command)

    def output(self, *command: str) -> str:
        """The same for a command that has to succeed: what it printed."""
        done = self(*command)
        assert done.status == 0, f"{' '.join(command)}:\n{done.out[-4000:]}\n{done.err[-4000:]}"
        return done.out

    def daemon(self, command: Sequence[str], log: Path) -> ChildProcess:
        """Start a command that goes on; the caller stops it, and with it what runs in the container."""
        whole = ["buildah", "run", *self._options, self._name, "--", *command]
        process = ChildProcess(whole, log, env=self._buildah.environment)
        process.start()
        return process
