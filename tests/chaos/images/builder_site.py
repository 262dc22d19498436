# SPDX-License-Identifier: Apache-2.0
"""The processes of a run with images: ZooKeeper, two clouds, two builders with a disk each."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from simulators.openstack import SimulatorClient
from tests.chaos.events import Events
from tests.chaos.images.disks import Disk
from tests.chaos.links import Links
from tests.chaos.world import CHROOT, SESSION_SECONDS
from tests.support import small_dib
from tests.support.image_znodes import ImageZnodes
from tests.support.launcher import BUILDER_VARIABLE, ROOT, BuilderProcess
from tests.support.launcher_config import write_config
from tests.support.process import ChildProcess
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble

IMAGES = ("bookworm", "jammy", "noble", "stream")
#: The one that is removed from the configuration now and then.
REMOVABLE = IMAGES[-1]
#: Provider (and its cloud) -> format of its images.
FORMATS: Mapping[str, str] = {"cloud-one": "qcow2", "cloud-two": "raw"}
#: While there are faults images are built again after so many seconds; afterwards they are left alone.
REBUILD_SECONDS, LATER_SECONDS = 20, 86400
#: A build that takes longer is ended.
BUILD_TIMEOUT = 12
#: Bytes of each file of a build, and the seconds that it takes.
IMAGE_BYTES, BUILD_SECONDS = 200_000, (0.5, 2.0)
#: What the builders do sooner: after failed builds, about files without a record (R-15), about unreadable records, and
#: about records of abandoned uploads (R-4), but later than builders that are cut off, or stand still, go on.
CONSTANTS = (
    "nodepool.plan.images.FIRST_PAUSE_SECONDS=5",
    "nodepool.plan.images.ORPHAN_AGE_SECONDS=15",
    "nodepool.plan.images.UNREADABLE_SECONDS=15",
    "nodepool.plan.images.ABANDONED_SECONDS=20",
)


class ImageProvider:
    """A cloud into which images are uploaded."""

    slots = 0
    labels: Sequence[str] = ()

    def __init__(self, name: str, images: Sequence[str]) -> None:
        self.name = name
        self._images = images

    def as_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "driver": "openstack",
            "cloud": self.name,
            "rate": 0,
            "diskimages": [{"name": image} for image in self._images],
            "pools": [],
        }


class BuilderSite(Events):
    """Starts and ends the processes, keeps what happened when.

    :param directory: logs, configurations, disks and data go there.
    :param builders: how many.
    """

    def __init__(self, directory: Path, seed: int, builders: int = 2) -> None:
        super().__init__()
        self.directory = directory
        self._seed = seed
        self.zookeeper: ZooKeeperServer | ZooKeeperEnsemble = ZooKeeperServer(directory / "zookeeper")
        self._simulators = {name: self._make_simulator(name, number) for number, name in enumerate(FORMATS)}
        self.clouds: dict[str, SimulatorClient] = {}
        self.disks = [Disk(directory / f"images{number}") for number in range(builders)]
        self.builders = [self._make_builder(number) for number in range(builders)]
        #: The way of each builder to ZooKeeper and the first cloud.
        self.links: list[Links] = []
        self.znodes: ImageZnodes
        self.steering = directory / "steering.json"
        self.journal = directory / "journal"
        self._removed: Sequence[str] = ()
        self._rebuild_seconds = REBUILD_SECONDS

    def _make_simulator(self, name: str, number: int) -> ChildProcess:
        knobs = json.dumps({"latency_seconds": [0.0, 0.03]})
        options = ["--clouds-yaml", str(self._entry_file(name)), "--cloud", name, "--seed", f"{self._seed + number}"]
        command = [sys.executable, "-m", "simulators.openstack", *options, "--knobs", knobs]
        return ChildProcess(command, self.directory / f"{name}.log", cwd=ROOT)

    def _entry_file(self, name: str) -> Path:
        return self.directory / f"{name}.yaml"

    def _clouds_file(self, number: int) -> Path:
        return self.directory / f"clouds{number}.yaml"

    def _make_builder(self, number: int) -> BuilderProcess:
        config, log = self.directory / f"nodepool{number}.yaml", self.directory / f"builder{number}.log"
        command = [sys.executable, "-m", "tests.support.impatient", "builder", *CONSTANTS, "--"]
        if other := os.environ.get(BUILDER_VARIABLE):
            command = other.split()
        environment = {"OS_CLIENT_CONFIG_FILE": str(self._clouds_file(number))}
        return BuilderProcess(config, log, command, debug=True, environment=environment)

    def start(self) -> None:
        """Blocks until everything serves. :raises AssertionError: something does not."""
        self.zookeeper.start()
        root = ImageZnodes(self.zookeeper.plain_hosts())
        root.start()
        root.kazoo.ensure_path(CHROOT)
        root.stop()
        self.znodes = ImageZnodes(self.zookeeper.plain_hosts(CHROOT))
        self.znodes.start()
        for name, simulator in self._simulators.items():
            simulator.start()
            text = wait_for(f"{name} says where it is", lambda s=simulator: s.log_text().rpartition("\n")[0])  # type: ignore[misc]
            self.clouds[name] = SimulatorClient(text.splitlines()[-1])
        self._write_clouds()
        self.steer()
        for number, builder in enumerate(self.builders):
            self.disks[number].make()
            links = Links(f"{self._seed} {number}", self.zookeeper.tls_ports, next(iter(self.clouds.values())).url)
            links.start()
            self.links.append(links)
            links.write_clouds(self.directory / "clouds.yaml", self._clouds_file(number))
            self.configure(number)
            builder.start()

    def _write_clouds(self) -> None:
        clouds: dict[str, Any] = {}
        for name, image_format in FORMATS.items():
            entry = yaml.safe_load(self._entry_file(name).read_text(encoding="utf-8"))["clouds"][name]
            clouds[name] = {**entry, "image_format": image_format}
        (self.directory / "clouds.yaml").write_text(yaml.safe_dump({"clouds": clouds}), encoding="utf-8")

    def steer(self, fail: float = 0.0, hang: float = 0.0) -> None:
        """Says how builds go from now on; shares of them."""
        steering = {"seconds": BUILD_SECONDS, "bytes": IMAGE_BYTES, "fail": fail, "hang": hang}
        new = self.steering.with_suffix(".new")
        new.write_text(json.dumps({**steering, "journal": str(self.journal)}), encoding="utf-8")
        new.replace(self.steering)

    def reconfigure(self, removed: Sequence[str] = (), rebuild_seconds: int | None = None) -> None:
        """Writes all configurations anew.

        :param removed: images that nobody wants now. :param rebuild_seconds: None: as before.
        """
        self._removed = removed
        self._rebuild_seconds = self._rebuild_seconds if rebuild_seconds is None else rebuild_seconds
        for number in range(len(self.builders)):
            self.configure(number)

    def configure(self, number: int) -> None:
        """Writes the configuration of a builder."""
        images = [name for name in IMAGES if name not in self._removed]
        dib = f"{sys.executable} -I -S {Path(small_dib.__file__)} {self.steering}"
        diskimages = [
            {
                "name": name,
                "elements": ["small"],
                "dib-cmd": dib,
                "rebuild-age": self._rebuild_seconds,
                "build-timeout": BUILD_TIMEOUT,
                "env-vars": {small_dib.MARK: str(self.directory)},
            }
            for name in images
        ]
        write_config(
            self.builders[number].config_path,
            self.zookeeper,
            CHROOT,
            [ImageProvider(name, images) for name in FORMATS],
            session_seconds=SESSION_SECONDS,
            zookeeper_ports=self.links[number].zookeeper_ports,
            extra={
                "images-dir": str(self.disks[number].directory),
                "build-log-dir": str(self.directory / f"build-logs{number}"),
                "diskimages": diskimages,
            },
        )

    def signal_cloud(self, name: str, number: int) -> None:
        """Sends a signal to a cloud's process."""
        self._simulators[name].send_signal(number)

    def stop(self) -> None:
        """Ends everything, in any state."""
        for simulator in self._simulators.values():
            simulator.send_signal(signal.SIGCONT)
        for builder in self.builders:
            if builder.running:
                builder.stop(seconds=30)
        for links in self.links:
            links.stop()
        for simulator in self._simulators.values():
            simulator.stop()
        if hasattr(self, "znodes"):
            self.znodes.stop()
        self.zookeeper.stop()
        for disk in self.disks:
            disk.remove()
