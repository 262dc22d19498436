# SPDX-License-Identifier: Apache-2.0
"""The file system of the log is full: what is logged is lost, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.launcher import OUR_COMMAND, ROOT
from tests.support.launcher_config import FakeProvider, StaticProvider, static_hosts
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

#: Each write to it fails with ENOSPC.
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_full_disk(workplace: Workplace) -> None:
    """No thread ends because it cannot log; requests are served, nodes made anew, and the end is in order."""
    redirect = ["env", f"PYTHONPATH={ROOT}", "sh", "-c", f'exec "$@" >{FULL} 2>&1', "launcher"]
    static = StaticProvider(static_hosts(1))
    launcher = workplace.launch([static, FakeProvider(["made"])], command=[*redirect, *OUR_COMMAND])
    for label in ("small", "made", "small"):
        _use_one(workplace.znodes, label)
    workplace.wait_nodes(static)
    assert launcher.stop(signal.SIGTERM) == 0
    assert launcher.log_text() == ""


def _use_one(znodes: PoolZnodes, label: str) -> None:
    request = znodes.submit([label])
    wait_for(f"{label} is fulfilled", lambda: znodes.request_state(request) == "fulfilled")
    for node_id in (znodes.request(request) or {})["nodes"]:
        znodes.change_node(node_id, state="used")
    znodes.delete_request(request)
