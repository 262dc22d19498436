# SPDX-License-Identifier: Apache-2.0
"""Azurite as a process, and Microsoft's client of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.requirements import MissingRequirement
from tests.support.wait import wait_for

#: Its program; else ``azurite-blob`` in the path.
VARIABLE = "NODEPOOL_TEST_AZURITE"
#: Name and key that each Azurite has: https://learn.microsoft.com/azure/storage/common/storage-use-azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobServiceClient]:
    program = os.environ.get(VARIABLE) or shutil.which("azurite-blob")
    if not program:
        raise MissingRequirement(f"azurite-blob in the path or in {VARIABLE}", "npm install --global azurite@3.35.0")
    directory: Path = tmp_path_factory.mktemp("azurite")
    (port,) = free_ports(1)
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    process = ChildProcess(
        [program, *options, "--skipApiVersionCheck", "--disableTelemetry"], directory / "log", cwd=directory
    )
    process.start()
    try:
        wait_for("Azurite listens", lambda: "successfully listen" in process.log_text())
        with BlobServiceClient(f"http://127.0.0.1:{port}/{ACCOUNT}", credential=KEY) as client:
            client.create_container("disks")
            yield client
    finally:
        process.stop()
