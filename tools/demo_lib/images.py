# SPDX-License-Identifier: Apache-2.0
"""The part of the demonstration with images: one is built, uploaded to a simulated cloud, and a node boots from it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo_lib.errors import DemoError
from demo_lib.processes import Processes, find_program, run
from demo_lib.screen import Screen, Tables
from demo_lib.zuul import Zuul

#: Of etc/demo.yaml.
IMAGE, LABEL = "debian", "virtual"
#: A build of ``--fake``, its upload, or a boot in the simulated cloud takes a second or two.
PATIENCE_SECONDS = 60


class ImageStory:
    """What happens from a cloud without our image to a node that boots from it.

    :param directory: of the demonstration.
    :param programs: where ``nodepool`` and ``nodepool-builder`` are.
    :param config: the configuration, which the launcher uses, too.
    """

    def __init__(self, directory: Path, programs: Path, config: Path, processes: Processes, screen: Screen) -> None:
        self._directory = directory
        self._programs = programs
        self._config = config
        self._processes = processes
        self._screen = screen
        self._tool: list[str | Path] = [programs / "nodepool", "-c", config]
        self._tables = Tables(self._tool)

    def build_and_upload(self) -> None:
        """Start the builder, which makes the image that is missing and uploads it. Blocks. Raises DemoError."""
        self._screen.step("Starting nodepool-builder, with a stand-in for diskimage-builder (--fake)")
        program = find_program(str(self._programs / "nodepool-builder"))
        command: list[str | Path] = [program, "-f", "--fake", "-c", self._config]
        process = self._processes.start("nodepool-builder", command, self._directory / "builder.log")
        self._screen.note(f"log: {process.log}")
        self._screen.note(f"It sees that there is no image {IMAGE}, builds one, and uploads it.")
        self._wait("the build", lambda: bool(self._records("dib-image-list")))
        self._tables.show("dib-image-list")
        self._wait("the upload", lambda: self._states("image-list") == ["ready"])
        self._tables.show("dib-image-list", "image-list")

    def use_node(self, zuul: Zuul) -> None:
        """A node boots from the image, is used and deleted. Blocks. Raises DemoError."""
        self._screen.step(f"Submitting a request for a node that boots from it: {LABEL}")
        begin = time.monotonic()
        request_id = zuul.submit([LABEL])
        request = zuul.wait_for_answer(request_id, PATIENCE_SECONDS)
        self._screen.note(f"request {request_id} is {request['state']} after {time.monotonic() - begin:.1f} s")
        if request["state"] != "fulfilled":
            raise DemoError(f"the request was not served; see {self._directory / 'launcher.log'}")
        node_ids = [str(node_id) for node_id in request["nodes"]]
        zuul.accept(request_id, node_ids)
        zuul.use(node_ids)
        self._tables.show("list")
        zuul.give_back(node_ids)
        self._wait("the deletion of the server", lambda: not set(node_ids) & set(zuul.nodes()))
        self._screen.note("The job has ended: its server and its node are deleted. The image stays.")
        self._tables.show("list", "image-list")

    def _states(self, table: str) -> list[str]:
        return [str(row["state"]) for row in self._records(table)]

    def _records(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(run([*self._tool, table, "--format", "json"]))
        return rows

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            self._processes.check()
            if time.monotonic() > deadline:
                raise DemoError(f"waited {PATIENCE_SECONDS} s for {what}; see the logs in {self._directory}")
            time.sleep(0.05)
