# SPDX-License-Identifier: Apache-2.0
"""A launcher is killed in calls of Google Compute Engine, and another one takes over (F-1; CM-1, CM-8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.testing.gce import GceSimulator
from tests.support.gce_place import gce_section
from tests.support.pool_znodes import PoolZnodes
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

NODES = 5
#: A launcher that was killed holds its locks for that long.
SESSION_SECONDS = 2.0


@pytest.mark.parametrize(("operation", "after"), [("instances.insert", True), ("zoneOperations.list", False)])
def test_killed_in_a_call(
    workplace: Workplace, znodes: PoolZnodes, sshd: SshServer, tmp_path: Path, operation: str, after: bool
) -> None:
    """Calls that it never learned the answer of: all are served with one instance each, and nothing is left."""
    with GceSimulator() as project:
        section = gce_section(project.write_key_file(tmp_path / "key.json"), project.url, sshd.port)
        section["pools"][0]["host-key-checking"] = False
        workplace.launch([SectionProvider(section)], session_seconds=SESSION_SECONDS)
        before = project.state()["calls"].get(operation, 0)
        project.change(errors=[{"operation": operation, "kind": "hang", "after": after}])
        requests = [znodes.submit(["small"]) for _ in range(NODES)]
        wait_for("it is in the call", lambda: project.state()["calls"].get(operation, 0) > before)
        workplace.launchers[0].kill()
        project.change(errors=[], hidden_rate=0.5)
        workplace.launch([SectionProvider(section)], session_seconds=SESSION_SECONDS, wait=False)
        wait_for("all are served", lambda: all(znodes.request_state(one) == "fulfilled" for one in requests), 90)
        nodes = [node for request in requests for node in (znodes.request(request) or {})["nodes"]]
        assert len({(znodes.node(node) or {})["external_id"] for node in nodes}) == NODES
        for request, node in zip(requests, nodes, strict=True):
            znodes.change_node(node, state="used")
            znodes.delete_request(request)

        def empty() -> bool:
            contents = project.state()["contents"]
            assert (contents["instances"], contents["disks"], znodes.nodes()) == (0, 0, {}), contents
            return True

        wait_for("nothing is left", empty, 90)
        state = project.state()
        assert (state["double_nodes"], state["bugs"]) == ([], [])
