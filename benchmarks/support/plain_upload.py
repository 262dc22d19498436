# SPDX-License-Identifier: Apache-2.0
"""What the link to a cloud gives: the file of an image is sent by ``curl`` and by nothing of ours."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openstack
from openstack.connection import Connection


def upload_seconds(clouds: Sequence[str], file: Path) -> float:
    """How long it takes to send a file to all these clouds at once, until the last has it. Blocks as long.

    :param clouds: names in ``clouds.yaml``; they have no more images in the end than before.
    """
    connections = [_connect(name) for name in clouds]
    try:
        images = [_create(connection) for connection in connections]
        start = time.monotonic()
        transfers = [_send(connection, image, file) for connection, image in zip(connections, images, strict=True)]
        codes = [transfer.wait() for transfer in transfers]
        passed = time.monotonic() - start
        for connection, image in zip(connections, images, strict=True):
            connection.image.delete_image(image)
        if any(codes):
            raise RuntimeError(f"curl ended with {codes}")
    finally:
        for connection in connections:
            connection.close()
            connection.session.session.close()
    return passed


def _connect(name: str) -> Any:
    connection: Connection = openstack.connect(cloud=name)
    return connection


def _create(connection: Any) -> str:
    body = {"name": "by curl", "disk_format": "qcow2", "container_format": "bare"}
    return str(connection.image.post("/images", json=body).json()["id"])


def _send(connection: Any, image: str, file: Path) -> subprocess.Popen[bytes]:
    url = f"{connection.image.get_endpoint().rstrip('/')}/v2/images/{image}/file".replace("/v2/v2/", "/v2/")
    # Without the last one curl waits up to a second for a leave to go on.
    headers = [f"X-Auth-Token: {connection.auth_token}", "Content-Type: application/octet-stream", "Expect:"]
    command = ["curl", "--silent", "--fail", "--upload-file", str(file), url]
    for header in headers:
        command += ["--header", header]
    return subprocess.Popen(command)
