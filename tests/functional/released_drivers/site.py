# SPDX-License-Identifier: Apache-2.0
"""A launcher of ours with one released driver, and the cloud that this talks to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from nodepool.driver.registry import PATH_VARIABLE
from tests.functional.released_drivers.cloud import Cloud
from tests.functional.released_drivers.released import offer
from tests.support.command_line import CommandLine, Result
from tests.support.launcher import COMMAND_VARIABLE, LauncherProcess, impatient_command
from tests.support.launcher_config import write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: Some drivers ask their cloud once in some seconds, one after the other.
SECONDS = 90.0
#: How much of a launcher's log a failure shows, in characters.
LOG_END = 6000
#: Pauses of our sweeps, in seconds: the tests need not wait for the minute that a cloud is given in earnest.
SWEEPS = {
    "nodepool.launcher.deletion.SWEEP_SECONDS": 3.0,
    "nodepool.driver.statemachine.leaks.LOOK_AGAIN_SECONDS": 1.0,
}


class Site:
    """One row of the table.

    :param chroot: that of ``cloud.znodes``.
    """

    def __init__(self, cloud: Cloud, zookeeper: ZooKeeperServer, chroot: str) -> None:
        self.cloud = cloud
        self.config = cloud.directory / "nodepool.yaml"
        self._zookeeper = zookeeper
        self._chroot = chroot
        drivers = offer(cloud.directory / "drivers", {cloud.driver: cloud.original} if cloud.original else {})
        self._environment = {PATH_VARIABLE: str(drivers)}
        self.launcher: LauncherProcess | None = None
        #: What the launcher wrote until its pools were registered.
        self.log_of_start = ""
        cloud.prepare()

    @property
    def znodes(self) -> PoolZnodes:
        return self.cloud.znodes

    def validate(self) -> Result:
        """What ``nodepool config-validate`` says of the configuration."""
        self._write_config()
        nodepool = CommandLine(self.config)
        nodepool.environment.update(self._environment)
        nodepool.environment.update(self.cloud.environment)
        return nodepool("config-validate")

    def start(self) -> None:
        """Starts cloud and launcher; blocks until the pools are registered."""
        self.cloud.start()
        self._write_config()
        log = self.cloud.directory / "launcher.log"
        environment = {**self._environment, **self.cloud.environment}
        self.launcher = LauncherProcess(
            self.config,
            log,
            impatient_command(SWEEPS),
            debug=COMMAND_VARIABLE not in os.environ,
            environment=environment,
        )
        self.launcher.start()
        self.wait("the pools are registered", self._registered)
        self.log_of_start = self.log()

    def restart(self) -> None:
        """Ends the launcher and starts it again; blocks until the pools are registered."""
        assert self.launcher is not None
        self.launcher.stop()
        self.launcher.start()
        self.wait("the pools are registered again", self._registered)

    def stop(self) -> None:
        """Ends launcher and cloud."""
        if self.launcher is not None:
            self.launcher.stop()
        self.cloud.stop()

    def log(self) -> str:
        return self.launcher.log_text() if self.launcher is not None else ""

    def wait(self, what: str, look: Callable[[], bool]) -> None:
        """As `wait_for`, with the launcher's log in the failure, and with an end as soon as waiting is useless."""

        def useful() -> bool:
            assert self.launcher is not None
            trouble = self.cloud.trouble() or ("" if self.launcher.running else "the launcher ended")
            if not trouble and "cannot be started" in self.log():
                trouble = "a provider cannot be started"
            if trouble:
                raise RuntimeError(trouble)
            return look()

        try:
            wait_for(what, useful, SECONDS)
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"{error}\n{self.log()[-LOG_END:]}") from None

    # -- what a client does

    def serve(self) -> tuple[str, Mapping[str, Any]]:
        """Asks for one node and waits for it. Returns its id and what its znode says."""
        request = self.znodes.submit([self.cloud.label])

        def over() -> bool:
            state = self.znodes.request_state(request)
            assert state in ("fulfilled", "failed"), f"the request is {state}"
            return True

        self.wait("the request is fulfilled", over)
        found = self.znodes.request(request) or {}
        assert found["state"] == "fulfilled", f"the request failed\n{self.log()[-LOG_END:]}"
        self.znodes.delete_request(request)
        (node_id,) = found["nodes"]
        return node_id, self.znodes.node(node_id) or {}

    def give_back(self, node_id: str) -> None:
        """What a client does when its job is over; blocks until the node is gone from ZooKeeper."""
        self.znodes.change_node(node_id, state="used")

        def gone() -> bool:
            node = self.znodes.node(node_id)
            assert node is None, f"node {node_id} is {node and node.get('state')}"
            return True

        self.wait(f"node {node_id} is gone", gone)

    def forget(self, node_id: str) -> None:
        """Lets the record of a node vanish. What the cloud has of it is leaked then."""
        self.znodes.vanish(node_id)

    def _registered(self) -> bool:
        wanted = {section.name for section in self.cloud.sections()}
        there = {pool.get("provider_name") for pool in self.znodes.pools() if pool.get("state") == "running"}
        assert wanted <= there, f"not registered: {wanted - there}"
        return True

    def _write_config(self) -> None:
        sections: list[Any] = [*self.cloud.sections()]
        write_config(self.config, self._zookeeper, self._chroot, sections)
