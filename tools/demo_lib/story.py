# SPDX-License-Identifier: Apache-2.0
"""The demonstration, step by step."""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from demo_lib.cloud import CloudStory
from demo_lib.errors import DemoError
from demo_lib.images import IMAGE, ImageStory
from demo_lib.processes import Processes, find_program, free_port
from demo_lib.screen import Screen, Tables
from demo_lib.services import make_certificates, start_sshd, start_zookeeper
from demo_lib.traffic import Traffic
from demo_lib.zuul import Zuul

#: The static hosts of etc/demo.yaml: every 127.x address is this machine.
HOSTS = ("127.0.71.1", "127.0.71.2", "127.0.71.3", "127.0.71.4")

#: One of the hosts has two slots.
NODE_COUNT = 5

LABELS = ("small", "large")

#: What can be shown: static hosts; a cloud with a quota and an outage; images that are built and used.
PARTS = HOSTS_PART, CLOUD_PART, BUILD_PART = "hosts", "cloud", "build"


class Demo:
    """One demonstration.

    :param directory: empty; everything is kept in it.
    :param programs: where ``nodepool`` and its daemons are.
    :param sample: the configuration to run with.
    :param parts: of `PARTS`, what is shown.
    """

    def __init__(self, directory: Path, programs: Path, sample: Path, parts: Sequence[str]) -> None:
        self._parts = parts
        self._directory = directory
        self._programs = programs
        self._sample = sample
        self._processes = Processes()
        self._screen = Screen()
        self._zuul: Zuul | None = None
        self._config = directory / "nodepool.yaml"
        self._tables = Tables([self._programs / "nodepool", "-c", self._config])
        #: Of the web pages; known when nodepool-web starts.
        self._pages = ""
        self._cloud = CloudStory(directory, self._tables, self._processes, self._screen)
        self._images = ImageStory(directory, programs, self._config, self._processes, self._screen)

    def run(self) -> None:
        """All steps, until the last node is deleted. Blocks. Raises DemoError."""
        zuul = self._start_zookeeper()
        self._start_hosts()
        self._cloud.start()
        self._start_launcher(zuul)
        if HOSTS_PART in self._parts:
            self._use_nodes(zuul, self._request_nodes(zuul))
        if CLOUD_PART in self._parts:
            self._cloud.run(zuul)
        if BUILD_PART in self._parts:
            self._images.build_and_upload()
            self._images.use_node(zuul)

    def stay(self, stopped: threading.Event) -> None:
        """Example jobs come until ``stopped`` is set. Blocks. Raises DemoError when a program ends by itself."""
        assert self._zuul is not None
        self._screen.step("Example jobs come and go until you press Ctrl-C. In another terminal, try:")
        build = ("image-list", f"image-build {IMAGE} --wait") if BUILD_PART in self._parts else ()
        # Without a build, the label of the image cannot be served, and a check says so.
        check = "check" if BUILD_PART in self._parts else "check lab"
        listings = ("status", "explain server", "list --detail", "request-list", "events", "providers --limits")
        command = self._make_command()
        for rest in (*listings, *build, "list --format json", "config-validate", check):
            self._screen.note(f"{command} {rest}")
        self._screen.note(f"editor {self._config}     (the launcher notices a change by itself)")
        self._screen.note(f"The web pages, which show all of that: {self._pages}")
        traffic = Traffic(self._zuul, self._cloud.simulator(), BUILD_PART in self._parts)
        while not stopped.wait(1):
            self._processes.check()
            traffic.step()

    def _make_command(self) -> Path:
        """``nodepool`` with all that it needs here, such as where the login of the cloud is."""
        command = self._directory / "nodepool"
        login = f"OS_CLIENT_CONFIG_FILE={shlex.quote(os.environ['OS_CLIENT_CONFIG_FILE'])}"
        words = shlex.join([str(self._programs / "nodepool"), "-c", str(self._config)])
        command.write_text(f'#!/bin/sh\n{login} exec {words} "$@"\n')
        command.chmod(0o755)
        return command

    def close(self) -> bool:
        """End everything that was started. Blocks, with a bound. Returns False when something ended badly."""
        self._screen.step("Stopping")
        if self._zuul is not None:
            self._zuul.close()
        return self._processes.stop_all()

    def _start_zookeeper(self) -> Zuul:
        self._screen.step("Making a certificate authority, and certificates for ZooKeeper and its clients")
        ca = self._directory / "ca"
        make_certificates(ca)
        self._screen.note(f"in {ca}")
        port = free_port(["127.0.0.1"])
        self._screen.step(f"Starting a private ZooKeeper on 127.0.0.1:{port}, TLS only")
        process = start_zookeeper(self._processes, self._directory / "zookeeper", ca, port)
        self._screen.note(f"log: {process.log}")
        os.environ["NODEPOOL_DEMO_ZOOKEEPER_PORT"] = str(port)
        self._zuul = Zuul(port, ca)
        try:
            self._zuul.connect(60)
        except DemoError:
            process.check()
            raise
        return self._zuul

    def _start_hosts(self) -> None:
        port = free_port(HOSTS)
        self._screen.step(f"Starting an SSH server that answers on {', '.join(HOSTS)}, port {port}: the static hosts")
        process = start_sshd(self._processes, self._directory / "sshd", HOSTS, port)
        self._screen.note(f"log: {process.log}")
        os.environ["NODEPOOL_DEMO_SSH_PORT"] = str(port)

    def _start_launcher(self, zuul: Zuul) -> None:
        self._screen.step("Starting nodepool-launcher")
        for name in ("WEB", "PAGES"):
            os.environ[f"NODEPOOL_DEMO_{name}_PORT"] = str(free_port(["127.0.0.1"]))
        os.environ["NODEPOOL_DEMO_DIRECTORY"] = str(self._directory)
        self._config.write_text(fill_in(self._sample.read_text()))
        self._screen.note(f"configuration: {self._config} (made from {self._sample})")
        program = find_program(str(self._programs / "nodepool-launcher"))
        command: list[str | Path] = [program, "-f", "-c", self._config]
        process = self._processes.start("nodepool-launcher", command, self._directory / "launcher.log")
        self._screen.note(f"log: {process.log}")
        self._screen.note("It scans the host keys, and registers every slot of every host as a ready node.")
        self._wait("the launcher to register the hosts", 60, lambda: ready_count(zuul) == NODE_COUNT)
        self._tables.show("list")
        self._start_web()

    def _start_web(self) -> None:
        self._screen.step("Starting nodepool-web")
        self._pages = f"http://127.0.0.1:{os.environ['NODEPOOL_DEMO_PAGES_PORT']}/"
        program = find_program(str(self._programs / "nodepool-web"))
        process = self._processes.start(
            "nodepool-web", [program, "-f", "-c", self._config], self._directory / "web.log"
        )
        self._screen.note(f"log: {process.log}")
        self._wait("the web pages", 60, lambda: answers(f"{self._pages}health/ready"))
        self._screen.note(f"Web pages: {self._pages} shows what happens from here on, without a reload.")

    def _request_nodes(self, zuul: Zuul) -> list[str]:
        self._screen.step(f"Submitting a request for two nodes as Zuul does: {' and '.join(LABELS)}")
        begin = time.monotonic()
        request_id = zuul.submit(LABELS)
        request = zuul.wait_for_answer(request_id, 30)
        spent = time.monotonic() - begin
        self._screen.note(f"request {request_id} is {request['state']} after {spent * 1000:.0f} ms")
        self._tables.show("request-list", "list")
        if request["state"] != "fulfilled":
            raise DemoError(f"the request was not served; see {self._directory / 'launcher.log'}")
        node_ids = [str(node_id) for node_id in request["nodes"]]
        self._screen.step(f"Accepting nodes {' and '.join(node_ids)} as Zuul does: lock them, delete the request")
        zuul.accept(request_id, node_ids)
        self._tables.show("request-list", "list")
        return node_ids

    def _use_nodes(self, zuul: Zuul, node_ids: list[str]) -> None:
        self._screen.step("A job runs: the nodes are in use")
        zuul.use(node_ids)
        self._tables.show("list")
        self._screen.step("The job has ended: the nodes are returned, and the launcher makes them ready again")
        returned = time.time()
        zuul.give_back(node_ids)
        self._tables.show("list")
        self._wait("the nodes to be ready again", 60, lambda: ready_count(zuul) == NODE_COUNT)
        self._tables.show("list")
        spent = max(node["state_time"] for node in zuul.nodes().values()) - returned
        self._screen.note(f"All {NODE_COUNT} nodes are ready again, {spent * 1000:.0f} ms after their return.")

    def _wait(self, what: str, timeout_seconds: float, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout_seconds
        pause = threading.Event()
        while not done():
            self._processes.check()
            if time.monotonic() > deadline:
                raise DemoError(f"waited {timeout_seconds:.0f} s for {what}; see the logs in {self._directory}")
            pause.wait(0.05)


def answers(url: str) -> bool:
    """Is there an answer of HTTP with status 200? Blocks, at most some seconds."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ready_count(zuul: Zuul) -> int:
    """How many nodes a request could get now. Blocks."""
    return sum(node["state"] == "ready" and not node["allocated_to"] for node in zuul.nodes().values())


def fill_in(text: str) -> str:
    """Replace ``%(NODEPOOL_...)`` as Nodepool does, so that the copy can be read, and used without the environment."""
    return re.sub(r"%\((NODEPOOL_\w+)\)", lambda found: os.environ.get(found[1], found[0]), text)
