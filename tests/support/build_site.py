# SPDX-License-Identifier: Apache-2.0
"""`BuildSite`: build workers of a builder, without its daemon and without diskimage-builder."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from pathlib import Path

from nodepool.builder.build import FAKE_BUILD, BuildQueue, BuildWorker
from nodepool.builder.dib import NOTES
from nodepool.model.image import ImageBuild
from tests.support.image_site import IMAGE, ImageSite

FAKE = f"sh {shlex.quote(FAKE_BUILD)}"


class BuildSite:
    """Build workers of one builder, which the test calls itself."""

    def __init__(self, site: ImageSite, directory: Path) -> None:
        self.site = site
        self.directory = directory
        self.running = site.shared.builds
        site.config.build_log_dir = str(directory / "logs")
        self.command(FAKE)
        self.worker = BuildWorker(0, site.shared, BuildQueue())

    def command(self, command: str) -> None:
        """What builds the image."""
        self.site.config.diskimages[IMAGE].dib_cmd = command

    def script(self, script: str) -> None:
        """A shell script builds it; ``$@`` are the arguments, ``fake`` makes the files."""
        whole = "fake() { " + FAKE + ' "$@"; }; ' + script
        self.command(f"bash -c {shlex.quote(whole)} build")

    def once(self) -> float | None:
        """One pass on what is known now."""
        self.site.sync()
        wait = self.worker.run_once()
        self.site.sync()
        return wait

    def builds(self, image: str = IMAGE) -> list[ImageBuild]:
        return self.site.store.builds(image)

    def states(self) -> list[str]:
        return [build.state for build in self.builds()]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.site.files.directory.iterdir() if path.name != NOTES)

    def log(self) -> str:
        (path,) = (self.directory / "logs").iterdir()
        return path.read_text()


def in_background(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread
