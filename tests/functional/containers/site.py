# SPDX-License-Identifier: Apache-2.0
"""``/etc/nodepool`` of a container: configuration, and keys that only its user reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer

#: User and group of all images.
USER: Final = 10001


class Site:
    """One static host, and web pages at ``port``.

    :param directory: of the test.
    """

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, chroot: str) -> None:
        self.etc = directory / "etc"
        self.etc.mkdir()
        (self.port,) = free_ports(1)
        inside = zookeeper.certificates.copied(self.etc, "/etc/nodepool")
        for file in self.etc.iterdir():
            file.chmod(0o640)
            os.chown(file, 0, USER)
        write_config(
            self.etc / "nodepool.yaml",
            zookeeper,
            chroot,
            [StaticProvider(static_hosts(1))],
            certificates=inside,
            extra={
                "webapp": {"listen_address": "127.0.0.1", "port": self.port},
                "images-dir": "/opt/nodepool/images",
            },
        )
        # The user of the container has to get there.
        for path in (*reversed(self.etc.parents), self.etc):
            if path.stat().st_uid == os.geteuid() and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o011)

    @property
    def volumes(self) -> dict[Path, str]:
        return {self.etc: "/etc/nodepool"}
