# SPDX-License-Identifier: Apache-2.0
"""AWS as moto plays it, in a process of its own. Nobody here wrote it: it is an independent check of requests.

It runs instances at once, knows no client tokens, no quotas and no errors of capacity.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from tests.support.ports import free_ports
from tests.support.process import ChildProcess

REGION: Final = "us-east-1"
KEY_NAME: Final = "zuul"
BUCKET: Final = "images"
_PUBLIC_KEY: Final = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO3vyNz6QmcMMxbFTmZQJwaDkC7Pmt2dNFvGh2NGv6Th test"
#: What a program needs to be let in: moto takes anything.
_LOGIN: Final = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "very-secret"}


class MotoServer:
    """A region with moto's own images, a key pair and a bucket.

    :param directory: for its log.
    """

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        #: For programs that are to use it.
        self.environment = {
            **_LOGIN,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(directory / "no-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(directory / "no-credentials"),
        }
        command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = ChildProcess(command, directory / "moto.log")
        self._clients: dict[str, Any] = {}
        self._image_id = ""

    def start(self) -> None:
        self._process.start_until("moto", self._answers)

    def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self._process.stop()

    def reset(self) -> None:
        """Back to what it has at its start."""
        with urlopen(Request(f"{self.url}/moto-api/reset", b"", method="POST"), timeout=60):
            pass
        self.ec2.import_key_pair(KeyName=KEY_NAME, PublicKeyMaterial=_PUBLIC_KEY)
        self.client("s3").create_bucket(Bucket=BUCKET)

    @property
    def ec2(self) -> Any:
        """A client of botocore."""
        return self.client("ec2")

    def client(self, service: str) -> Any:
        """A client of botocore, for tests."""
        import botocore.session

        if service not in self._clients:
            session = botocore.session.Session()
            session.set_credentials(*_LOGIN.values())
            self._clients[service] = session.create_client(service, region_name=REGION, endpoint_url=self.url)
        return self._clients[service]

    def image_id(self) -> str:
        """One of moto's images; it has hundreds, always the same."""
        if not self._image_id:
            self._image_id = self.ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        return self._image_id

    def instances(self) -> Iterator[dict[str, Any]]:
        """Instances that have not ended."""
        for reservation in self.ec2.describe_instances()["Reservations"]:
            for instance in reservation["Instances"]:
                if instance["State"]["Name"] != "terminated":
                    yield instance

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urlopen(f"{self.url}/moto-api/data.json", timeout=5):
            return True
        return False
