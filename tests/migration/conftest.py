# SPDX-License-Identifier: Apache-2.0
"""What both programs find: a cloud for launchers that a test starts itself, and images."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.support.simulated_cloud import simulated_cloud
from simulators.openstack import SimulatorClient
from tests.support.command_line import Result
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[SimulatorClient]:
    """A simulated OpenStack for all launchers of the test."""
    with simulated_cloud(tmp_path, {"boot_seconds": [0.1, 0.2], "delete_seconds": [0.1, 0.2]}) as client:
        yield client


#: Ids of builds; the last one is of an old release.
A, B, OLD = "a" * 32, "b" * 32, "0000000003"


@pytest.fixture
def images(znodes: PoolZnodes) -> PoolZnodes:
    """Builds and uploads in every state, pauses and requests."""
    # Released commands take a request for pending while the directory of the lock is newer than the builds.
    znodes.put("debian/builds/lock")
    znodes.add_build("debian", A)
    znodes.add_build("debian", B, state="building", formats="")
    znodes.add_build("debian", OLD, state="failed", builder_id=None)
    znodes.add_upload("debian", A, "lab", 7)
    znodes.add_upload("debian", A, "lab", 3, state="deleting")
    znodes.add_upload("debian", A, "cloud", 1, state="failed", external_id=None, external_name=None, format=None)
    znodes.add_upload("debian", OLD, "lab", 12, state="uploading", external_id=None)
    znodes.put("debian/request-build")
    znodes.add_build("fedora-40", A)
    znodes.put("fedora-40/pause")
    znodes.put("gone/builds/lock")
    return znodes


def run_released(config: Path, *arguments: str) -> Result:
    """The command line of the released package."""
    # Both have packages of the same name: it must not find ours.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(released_programs().tool), "-c", str(config), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    return Result(done.returncode, done.stdout, done.stderr)
