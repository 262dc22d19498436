# SPDX-License-Identifier: Apache-2.0
"""The part of the demonstration with a cloud: launches, a full quota, an outage, and what ``nodepool explain`` says."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from demo_lib.errors import DemoError
from demo_lib.processes import Processes, free_port
from demo_lib.screen import Screen, Tables
from demo_lib.zuul import Zuul
from simulators.openstack.client import SimulatorClient

#: Of etc/demo.yaml.
LABEL, CLOUD, PROVIDER = "server", "demo", "cloud"
#: Servers that the quota of the simulated project allows.
QUOTA: Final = 5
#: A boot takes some seconds; so does it until the launcher tries again after an outage.
PATIENCE_SECONDS: Final = 300.0
#: Between two looks; each is a command.
LOOK_SECONDS: Final = 0.3
#: What the simulated cloud is like. An outage is an error in every answer.
KNOBS: Final = {"quota": {"instances": QUOTA}, "boot_seconds": [0.5, 2.0]}
OUTAGE: Final = [{"operation": "*", "kind": "503"}]


class CloudStory:
    """What happens in a cloud, from launches to an outage.

    :param directory: of the demonstration.
    """

    def __init__(self, directory: Path, tables: Tables, processes: Processes, screen: Screen) -> None:
        self._directory = directory
        self._tables = tables
        self._processes = processes
        self._screen = screen
        self._url = ""

    def start(self) -> None:
        """Start the simulator of OpenStack. Programs that are started later find it. Blocks. Raises DemoError."""
        port = free_port(["127.0.0.1"])
        self._screen.step(f"Starting a simulated OpenStack on 127.0.0.1:{port}, with a quota of {QUOTA} servers")
        clouds = self._directory / "clouds.yaml"
        command = [sys.executable, "-m", "simulators.openstack", "--port", str(port), "--cloud", CLOUD]
        command += ["--clouds-yaml", str(clouds), "--knobs", json.dumps(KNOBS)]
        process = self._processes.start("simulated OpenStack", command, self._directory / "openstack.log")
        self._screen.note(f"log: {process.log}")
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(clouds)
        self._wait("the simulated OpenStack", clouds.exists)
        self._url = f"http://127.0.0.1:{port}"

    def simulator(self) -> SimulatorClient:
        """Of the cloud that was started."""
        return SimulatorClient(self._url)

    def run(self, zuul: Zuul) -> None:
        """All of it. Blocks. Raises DemoError."""
        cloud = self.simulator()
        in_use = self._launch(zuul)
        waiting = self._fill_quota(zuul)
        self._screen.step("One job ends: its server is deleted, and the request that waits gets the room")
        zuul.give_back(in_use[0])
        in_use = [*in_use[1:], self._served(zuul, waiting)]
        self._tables.show("list --provider cloud")
        in_use = self._outage(zuul, cloud, in_use)
        self._screen.step("All jobs end: their servers are deleted")
        for node_ids in in_use:
            zuul.give_back(node_ids)
        ended = {node_id for node_ids in in_use for node_id in node_ids}
        self._wait("the deletion of the servers", lambda: not ended & set(zuul.nodes()))
        self._screen.note(f"The cloud has {len(cloud.servers())} servers now.")

    def _launch(self, zuul: Zuul) -> list[list[str]]:
        self._screen.step(f"Submitting {QUOTA} requests for a server of the cloud: label {LABEL}")
        requests = [zuul.submit([LABEL]) for _ in range(QUOTA)]
        in_use = [self._served(zuul, request_id) for request_id in requests]
        self._tables.show("list --provider cloud")
        return in_use

    def _fill_quota(self, zuul: Zuul) -> str:
        """A request more than there is room for; returns its id."""
        self._screen.step("Submitting one request more: the quota of the project is used up")
        request_id = zuul.submit([LABEL])
        self._wait_for_reason(request_id, "room.")
        self._tables.show(f"explain {request_id}", "providers cloud --limits")
        return request_id

    def _outage(self, zuul: Zuul, cloud: SimulatorClient, in_use: list[list[str]]) -> list[list[str]]:
        """The cloud fails and comes back; returns the nodes in use then."""
        self._screen.step("The cloud fails: every call is answered with 503")
        cloud.change(errors=OUTAGE)
        zuul.give_back(in_use[0])
        request_id = zuul.submit([LABEL])
        self._screen.note("A job ends, and another request comes. The launcher cannot delete or launch a server.")
        self._wait_for_reason(request_id, "provider.")
        self._tables.show(f"explain {request_id}", "providers cloud", "status")
        self._screen.note("The request waits, it does not fail. Jobs that run go on.")
        self._screen.step("The cloud is back")
        begin = time.monotonic()
        cloud.change(errors=[])
        served = self._served(zuul, request_id)
        self._screen.note(f"The request was served {time.monotonic() - begin:.0f} s later, by itself.")
        self._tables.show("list --provider cloud", "events")
        return [*in_use[1:], served]

    def _served(self, zuul: Zuul, request_id: str) -> list[str]:
        """Wait for a request, and take its nodes; returns their ids. Blocks. Raises DemoError."""
        begin = time.monotonic()
        request = zuul.wait_for_answer(request_id, PATIENCE_SECONDS)
        if request["state"] != "fulfilled":
            raise DemoError(f"the request was not served; see {self._directory / 'launcher.log'}")
        self._screen.note(f"request {request_id} is fulfilled after {time.monotonic() - begin:.1f} s")
        node_ids = [str(node_id) for node_id in request["nodes"]]
        zuul.accept(request_id, node_ids)
        zuul.use(node_ids)
        return node_ids

    def _wait_for_reason(self, request_id: str, code: str) -> None:
        """Until ``explain`` gives a reason of a kind."""
        self._wait("the launcher to see that", lambda: code in self._tables.read(f"explain {request_id} --format json"))

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            self._processes.check()
            if time.monotonic() > deadline:
                raise DemoError(f"waited {PATIENCE_SECONDS:.0f} s for {what}; see the logs in {self._directory}")
            time.sleep(LOOK_SECONDS)
