# SPDX-License-Identifier: Apache-2.0
"""What the tests do again and again: get nodes, use them, give them back, see that nothing is left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.functional.openstack.cloud import RealCloud
from tests.support.launcher import LauncherProcess
from tests.support.pool_znodes import NODES, REQUEST_LOCKS, REQUESTS, PoolZnodes
from tests.support.section_provider import SectionProvider
from tests.support.wait import wait_for
from tests.support.workplace import Workplace


class OpenStackProvider(SectionProvider):
    """An entry of ``providers`` with one pool and one label; ``section``, ``pool`` and ``label`` may be changed.

    :param label: name of its label.
    """

    def __init__(self, cloud: RealCloud, name: str = "real", label: str = "small") -> None:
        self.label: dict[str, Any] = {"name": label, "cloud-image": "ready", "flavor-name": cloud.flavor()}
        self.pool: dict[str, Any] = {"name": "main", "labels": [self.label]}
        if cloud.networks():
            self.pool["networks"] = cloud.networks()
        image = {
            "name": "ready",
            "image-name": cloud.image(),
            "username": os.environ.get("NODEPOOL_TEST_OPENSTACK_USER", "zuul"),
        }
        section = {"name": name, "driver": "openstack", "cloud": cloud.name, "rate": 0, "boot-timeout": 300}
        super().__init__({**section, "cloud-images": [image], "pools": [self.pool]})


if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

#: How long one request may take, and the end of all nodes, in seconds. Control planes are slow, and the rig shares its
#: processors with the test: 40 servers take a minute on a machine that does nothing else, six on one that is busy.
SERVED_SECONDS = 300.0
#: Session timeout of a launcher: while the rig makes many servers, everybody else may stand still for seconds.
SESSION_SECONDS = 40.0


class Place:
    """One cloud, one chroot, one Zuul, and launchers."""

    def __init__(self, cloud: RealCloud, workplace: Workplace, zuul: ZuulClient) -> None:
        self.cloud = cloud
        self.workplace = workplace
        self.zuul = zuul
        #: What the cloud held before the test.
        self.before = cloud.contents()

    @property
    def znodes(self) -> PoolZnodes:
        return self.workplace.znodes

    def launch(
        self, provider: OpenStackProvider, *, session_seconds: float = SESSION_SECONDS, **settings: Any
    ) -> LauncherProcess:
        """Starts a launcher and waits until it is registered."""
        return self.workplace.launch([provider], session_seconds=session_seconds, **settings)

    # -- what Zuul does --

    def fulfilled(self, request: Any) -> Any:
        """Waits for a request and returns it with its ``nodeset``; it must be fulfilled."""
        completed = self.zuul.wait(request, SERVED_SECONDS)
        assert completed.state == "fulfilled", f"request {request.id} is {completed.state}"
        return completed

    def use(self, request: Any) -> list[Any]:
        """Takes the nodes of a fulfilled request through a job. Returns them as Zuul saw them."""
        nodeset = self.zuul.accept(request)
        self.zuul.use(nodeset)
        nodes = list(nodeset.getNodes())
        self.zuul.give_back(nodeset)
        return nodes

    def serve(self, provider: OpenStackProvider, count: int, holds: Callable[[], bool]) -> None:
        """Asks for ``count`` nodes at once, and uses and returns each as it comes; ``holds`` must hold meanwhile."""
        (label,) = provider.labels
        waiting = {request.id: request for request in [self.zuul.submit([label]) for _ in range(count)]}

        def completed() -> list[str]:
            if not holds():
                raise RuntimeError("what must hold while requests are served does not hold")
            return [key for key in waiting if key in self.zuul.completed]

        while waiting:
            for request_id in wait_for("a completed request", completed, SERVED_SECONDS):
                self.use(self.fulfilled(waiting.pop(request_id)))

    # -- what must hold --

    def check_host_keys(self, node: Any) -> None:
        """K: Zuul got the keys that a look with OpenSSH's own program finds at the node's address."""
        command = ["ssh-keyscan", "-T", "20", "-p", str(node.connection_port), node.interface_ip]
        scan = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        keys = {" ".join(line.split()[1:3]) for line in scan.stdout.splitlines() if not line.startswith("#")}
        assert keys
        assert keys == set(node.host_keys)

    def wait_empty(self) -> None:
        """Waits until nothing is left in ZooKeeper or in the cloud. The end of every test."""
        self.wait_no_nodes()
        self.cloud.wait_only(self.before)

    def wait_no_nodes(self) -> None:
        """Waits until there is neither node nor request nor lock in ZooKeeper."""

        def empty() -> bool:
            left = {path: self._children(path) for path in (NODES, REQUESTS, REQUEST_LOCKS)}
            assert not any(left.values()), f"left in ZooKeeper: {left}, {self.znodes.nodes()}"
            return True

        wait_for("nothing is left in ZooKeeper", empty, SERVED_SECONDS)

    def _children(self, path: str) -> Sequence[str]:
        return [name for name in self.znodes.children(path) if name != "lock"]
