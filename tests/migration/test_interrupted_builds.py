# SPDX-License-Identifier: Apache-2.0
"""A build that died with its builder: ours cleans up after the released one, and the other way round."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.support.image_site import CloudProvider
from benchmarks.support.small_build import SmallBuild
from simulators.openstack import CLOUD_NAME, SimulatorClient
from tests.support.image_znodes import Image, ImageZnodes
from tests.support.launcher import OUR_BUILDER, BuilderProcess
from tests.support.launcher_config import write_config
from tests.support.released import released_programs
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

IMAGE = "debian"
#: The released builder looks again after a minute in places.
PATIENCE_SECONDS = 200.0


class Host:
    """A machine whose builder is replaced: its disk and its configuration stay."""

    def __init__(self, directory: Path, znodes: ImageZnodes) -> None:
        self.directory = directory
        self.znodes = znodes
        self.builder: BuilderProcess | None = None

    def run(self, *command: str) -> None:
        """Ends the builder that runs, and starts another one."""
        self.stop()
        number = len(list(self.directory.glob("builder*.log")))
        log = self.directory / f"builder{number}.log"
        self.builder = BuilderProcess(self.directory / "nodepool.yaml", log, command)
        self.builder.start()

    def stop(self) -> None:
        if self.builder is not None:
            self.builder.stop(signal.SIGTERM, seconds=60)
            self.builder = None

    def begin_endless_builds(self) -> None:
        """Builds that begin from now on go on until `end_endless_builds`."""
        (self.directory / "goes-on").touch()

    def end_endless_builds(self) -> None:
        (self.directory / "goes-on").unlink(missing_ok=True)

    def image(self) -> Image:
        return self.znodes.image(IMAGE)

    def ready(self) -> list[str]:
        """Ids of ready builds that are ready in the cloud, too."""
        return [build.build_id for build in self.image().builds if [u for u in build.uploads if u.state == "ready"]]

    def wait_ready(self, count: int) -> list[str]:
        def there() -> list[str]:
            assert self.builder is not None
            assert self.builder.running, self.builder.log_text()
            return self.ready() if len(self.ready()) == count else []

        return wait_for(f"{count} builds are ready in the cloud", there, PATIENCE_SECONDS)

    def files(self) -> set[str]:
        return {path.name for path in (self.directory / "images").iterdir() if path.name.startswith(IMAGE)}


@pytest.fixture
def host(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, cloud: SimulatorClient) -> Iterator[Host]:
    assert cloud.servers() == []
    for name in ("images", "logs"):
        (tmp_path / name).mkdir()
    build = SmallBuild(tmp_path, 0.5, 100_000)
    script = build.command.read_text(encoding="ascii").removeprefix("#!/bin/sh\n")
    waiting = f"#!/bin/sh\nwhile [ -e {tmp_path}/goes-on ]; do endless=1; sleep 0.2; done\n[ -z $endless ] || exit 1\n"
    build.command.write_text(waiting + script, encoding="ascii")
    extra = {
        "images-dir": str(tmp_path / "images"),
        "build-log-dir": str(tmp_path / "logs"),
        "diskimages": [{"name": IMAGE, "dib-cmd": shlex.quote(str(build.command)), "elements": ["element"]}],
    }
    provider = CloudProvider(CLOUD_NAME, [IMAGE])
    write_config(tmp_path / "nodepool.yaml", zookeeper, chroot, [provider], extra=extra)
    znodes = ImageZnodes(zookeeper.plain_hosts(chroot))
    znodes.start()
    made = Host(tmp_path, znodes)
    yield made
    made.stop()
    # Nobody ends what a killed builder of 11.0.0 has begun.
    made.end_endless_builds()
    znodes.stop()


def released() -> str:
    return str(released_programs().builder)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ended", ["released", "ours"])
def test_build_that_was_interrupted(host: Host, ended: str) -> None:
    """The other builder finds its record abandoned, removes it and builds the image."""
    old, new = ([released()], list(OUR_BUILDER))[:: 1 if ended == "released" else -1]
    host.begin_endless_builds()
    host.run(*old)
    (build,) = wait_for("a build runs", lambda: host.image().builds, PATIENCE_SECONDS)
    assert host.builder is not None
    host.builder.kill()
    host.builder = None
    host.end_endless_builds()
    host.run(*new)
    wait_for(
        "its record is gone", lambda: build.build_id not in [b.build_id for b in host.image().builds], PATIENCE_SECONDS
    )
    assert host.wait_ready(1) != [build.build_id]
    assert not [name for name in host.files() if build.build_id in name]
