# SPDX-License-Identifier: Apache-2.0
"""A launcher is killed in the middle of launches on AWS, and another one takes over (F-1; CM-1, CM-8)."""

from __future__ import annotations

from nodepool.testing.aws import AwsSimulator
from tests.support.aws_provider import aws_section
from tests.support.pool_znodes import PoolZnodes
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

NODES = 20
#: A launcher that was killed holds its locks for that long.
SESSION_SECONDS = 4.0


def _launch(region: AwsSimulator, sshd: SshServer, workplace: Workplace) -> None:
    with region.cloud() as cloud:
        section = aws_section(cloud.image_id, sshd.port)
    # What AWS lets come at once goes alone; the others wait and go together.
    section["rate"] = 2
    section["pools"][0]["max-servers"] = NODES + 5
    # What the killed one left is not yet in order when the other one begins.
    workplace.launch([SectionProvider(section)], session_seconds=SESSION_SECONDS, wait=not workplace.launchers)


def _finish(region: AwsSimulator, znodes: PoolZnodes, requests: list[str]) -> None:
    """All are served, with one instance each, and in the end nothing is left."""

    def served() -> bool:
        states = [znodes.request_state(request) for request in requests]
        assert states.count("fulfilled") == len(requests), states
        return True

    wait_for("all are served", served, 90)
    nodes = [node for request in requests for node in (znodes.request(request) or {})["nodes"]]
    instances = [(znodes.node(node) or {})["external_id"]["instance"] for node in nodes]
    assert len(set(instances)) == NODES, "no two nodes have the same instance"
    for request, node in zip(requests, nodes, strict=True):
        znodes.change_node(node, state="used")
        znodes.delete_request(request)

    def empty() -> bool:
        contents = region.state()["contents"]
        assert (contents["instances"], contents["volumes"], znodes.nodes()) == (0, 0, {}), contents
        return True

    wait_for("nothing is left", empty, 90)
    assert region.state()["peak_by_provider"]["region-a"] <= NODES + 5


def test_killed_between_call_and_tags(
    region: AwsSimulator, sshd: SshServer, workplace: Workplace, znodes: PoolZnodes
) -> None:
    """Instances that one call made for several nodes have no tags of their own yet: whose they are is known."""
    region.change(boot_seconds=3, errors=[{"operation": "ec2.CreateTags", "kind": "hang"}])
    _launch(region, sshd, workplace)
    requests = [znodes.submit(["small"]) for _ in range(NODES)]

    def joined() -> bool:
        with region.cloud() as cloud:
            batched = [one for one in cloud.instances.instances.values() if "nodepool_batch" in one.tags.value]
        return len(batched) >= 5

    wait_for("launches went together", joined)
    workplace.launchers[0].kill()
    region.change(errors=[])
    _launch(region, sshd, workplace)
    _finish(region, znodes, requests)


def test_killed_before_the_answers(
    region: AwsSimulator, sshd: SshServer, workplace: Workplace, znodes: PoolZnodes
) -> None:
    """Instances were made, and no launcher ever learned of it."""
    region.change(errors=[{"operation": "ec2.RunInstances", "kind": "hang", "after": True}])
    _launch(region, sshd, workplace)
    requests = [znodes.submit(["small"]) for _ in range(NODES)]
    wait_for("instances are there", lambda: region.state()["contents"]["instances"] >= 5)
    workplace.launchers[0].kill()
    region.change(errors=[], hidden_rate=0.5)
    _launch(region, sshd, workplace)
    _finish(region, znodes, requests)
