# SPDX-License-Identifier: Apache-2.0
"""Builders as processes, the simulated clouds that they upload to, and a launcher that boots from there."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from simulators.openstack import OpenStackSimulator
from tests.support import small_dib
from tests.support.build_journal import built_files, processes_of, read_journal
from tests.support.image_znodes import Image, ImageZnodes, Upload
from tests.support.launcher import OUR_BUILDER, BuilderProcess
from tests.support.launcher_config import zookeeper_sections
from tests.support.local_launcher import LocalLauncher
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: Provider (and its cloud) -> format of its images.
FORMATS: Mapping[str, str] = {"cloud-a": "qcow2", "cloud-b": "raw"}
#: The image of the launcher's label.
IMAGE, LABEL = "debian", "small"
#: Bytes of each file of a build.
IMAGE_BYTES = 50_000


class ImagePlace:
    """Starts nothing by itself but the clouds.

    :param images: names of the images in the configuration; change it before `configure`.
    :param providers: those that use them; the same.
    """

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.chroot = chroot
        self.znodes = znodes
        self.images: list[str] = [IMAGE]
        self.providers: list[str] = list(FORMATS)
        #: More keys of each image.
        self.image_settings: dict[str, Any] = {}
        self.records = ImageZnodes(zookeeper.plain_hosts(chroot))
        self.clouds = {name: OpenStackSimulator() for name in FORMATS}
        self.clouds_file = directory / "clouds.yaml"
        self.builders: list[BuilderProcess] = []
        self.launcher: LocalLauncher | None = None

    def start(self) -> None:
        """The clouds, and what looks into ZooKeeper."""
        self.records.start()
        entries: dict[str, Any] = {}
        for name, cloud in self.clouds.items():
            cloud.start()
            entries[name] = {**cloud.clouds_yaml_entry(), "image_format": FORMATS[name]}
        self.clouds_file.write_text(yaml.safe_dump({"clouds": entries}), encoding="utf-8")
        self.steer()

    def stop(self) -> None:
        """Ends everything. :raises AssertionError: one of our builders wrote a traceback, or left a process."""
        if self.launcher is not None:
            self.launcher.stop()
        for builder in self.builders:
            builder.stop(seconds=30)
        for cloud in self.clouds.values():
            cloud.stop()
        self.records.stop()
        for builder in [one for one in self.builders if one.command[0] == sys.executable]:
            assert "Traceback" not in builder.log_text(), builder.log_text()[-5000:]
        assert processes_of(self.directory) == []

    def steer(self, seconds: Sequence[float] = (0.0, 0.1), fail: float = 0.0, hang: float = 0.0) -> None:
        """Says how builds go from now on: how long they take, and the shares that fail or hang."""
        steering = {"seconds": list(seconds), "bytes": IMAGE_BYTES, "fail": fail, "hang": hang}
        new = self.directory / "steering.new"
        new.write_text(json.dumps({**steering, "journal": str(self.directory / "journal")}), encoding="utf-8")
        new.replace(self.directory / "steering.json")

    # -- processes

    def settings(self) -> dict[str, Any]:
        """The configuration of builders and launcher, without ZooKeeper."""
        dib = f"{sys.executable} -I -S {Path(small_dib.__file__)} {self.directory / 'steering.json'}"
        marks = {small_dib.MARK: str(self.directory)}
        usual = {"elements": ["small"], "dib-cmd": dib, "env-vars": marks, **self.image_settings}
        return {
            "labels": [{"name": LABEL}],
            "diskimages": [{"name": name, **usual} for name in self.images],
            "providers": [self._provider(name) for name in self.providers],
        }

    def _provider(self, name: str) -> dict[str, Any]:
        label = {"name": LABEL, "diskimage": IMAGE, "min-ram": 512}
        pool = {"name": "main", "networks": ["provider"], "labels": [label], "host-key-checking": False}
        return {
            "name": name,
            "driver": "openstack",
            "cloud": name,
            "rate": 0,
            "diskimages": [{"name": image} for image in self.images],
            "pools": [pool] if IMAGE in self.images and name == "cloud-a" else [],
        }

    def add_builder(self, command: Sequence[str] = OUR_BUILDER, options: Sequence[str] = ()) -> BuilderProcess:
        """A builder with a disk of its own, ``images<number>``; it is not started."""
        number = len(self.builders)
        environment = {"OS_CLIENT_CONFIG_FILE": str(self.clouds_file)}
        config, log = self.directory / f"builder{number}.yaml", self.directory / f"builder{number}.log"
        made = BuilderProcess(config, log, command, options=options, debug=True, environment=environment)
        self.builders.append(made)
        self.images_dir(number).mkdir()
        self.configure(number)
        return made

    def images_dir(self, number: int) -> Path:
        return self.directory / f"images{number}"

    def configure(self, *numbers: int) -> None:
        """Writes the configuration of these builders, or of all."""
        for number in numbers or range(len(self.builders)):
            base = {
                **zookeeper_sections(self.zookeeper, self.chroot, 10.0),
                "images-dir": str(self.images_dir(number)),
                "build-log-dir": str(self.directory / f"build-logs{number}"),
            }
            text = yaml.safe_dump({**base, **self.settings()}, sort_keys=False)
            self.builders[number].config_path.write_text(text, encoding="utf-8")

    def launch(self) -> None:
        """Starts the launcher; blocks until it serves."""
        settings = copy.deepcopy(self.settings())
        self.launcher = LocalLauncher(self.directory / "launcher.yaml", self.zookeeper, self.chroot, settings)
        self.launcher.start()

    # -- looking

    def image(self, name: str = IMAGE) -> Image:
        return self.records.image(name)

    def files(self, number: int = 0) -> list[str]:
        """Names of what lies on a builder's disk of builds, sorted."""
        return sorted(path.name for path in self.images_dir(number).iterdir() if "-" in path.name)

    def cloud_images(self, provider: str) -> dict[str, Mapping[str, Any]]:
        """Images in a cloud by id, without those that were there before."""
        with self.clouds[provider].cloud() as cloud:
            return {image["id"]: dict(image) for image in cloud.images.images if image["name"] != "cloud-image"}

    def ready(self, name: str = IMAGE, builds: int | None = 1, seconds: float = 60.0) -> list[Upload]:
        """Waits until the newest of so many builds is ready in all providers; returns the current uploads there.

        What the records say is compared with what the clouds have.

        :param builds: None: however many.
        """

        def look() -> list[Upload]:
            image = self.image(name)
            ready = [build for build in image.builds if build.state == "ready"]
            assert ready, f"no build of {name} is ready"
            assert len(ready) == (builds or len(ready)), f"{len(ready)} builds of {name} are ready"
            newest = max(ready, key=lambda build: float((build.record or {})["state_time"]))
            found = [upload for provider in self.providers if (upload := image.current(provider))]
            assert [upload.build_id for upload in found] == [newest.build_id] * len(self.providers), f"uploads: {found}"
            return found

        uploads: list[Upload] = wait_for(f"{builds} builds of {name} are ready everywhere", look, seconds)
        made = built_files(read_journal(self.directory / "journal"))
        for upload in uploads:
            record = upload.record or {}
            stored = self.cloud_images(upload.provider)[record["external_id"]]
            assert stored["status"] == "active"
            assert stored["checksum"] == made[f"{name}-{upload.build_id}.{FORMATS[upload.provider]}"]
        return uploads

    # -- nodes

    def boot(self) -> str:
        """Asks for a node, waits for it, gives it back; returns the id of the image that its server was made of."""
        request = self.znodes.submit([LABEL])
        (node,) = self.znodes.served(request)
        with self.clouds["cloud-a"].cloud() as cloud:
            image = cloud.compute.servers.get(node["external_id"]).image_id
        self.znodes.use_and_return(request)
        return str(image)
