# SPDX-License-Identifier: Apache-2.0
"""``nodepool installation``, with clouds in the configuration (D-10, reference/commands 2)."""

from __future__ import annotations

import json

import pytest

from nodepool.zk import paths
from simulators.openstack import OpenStackSimulator
from tests.support.command_line import CommandLine, Result
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

OURS, LOST, OTHER = "0123456789abcdef", "fedcba9876543210", "1111222233334444"


def stored(znodes: PoolZnodes) -> dict[str, object] | None:
    if not znodes.kazoo.exists(paths.INSTALLATION):
        return None
    found: dict[str, object] = json.loads(znodes.kazoo.get(paths.INSTALLATION)[0])
    return found


@pytest.fixture
def ours(znodes: PoolZnodes) -> dict[str, object]:
    """This installation has an id, and none adopted; what is stored."""
    record: dict[str, object] = {"id": OURS, "adopted": []}
    znodes.kazoo.create(paths.INSTALLATION, json.dumps(record).encode(), makepath=True)
    return record


def test_none_yet(nodepool: CommandLine, znodes: PoolZnodes) -> None:
    """A command makes none. The first that is adopted becomes the id."""
    text = "this installation has no id yet: the first launcher or builder makes it\n"
    assert nodepool("installation") == Result(1, "", text)
    assert stored(znodes) is None
    assert nodepool("installation", "adopt", LOST, "--force").status == 0
    assert nodepool("installation") == Result(0, f"{LOST}\n", "")


@pytest.mark.usefixtures("ours")
def test_adopt(nodepool: CommandLine, znodes: PoolZnodes) -> None:
    refused = nodepool("installation", "adopt", LOST, answer="n\n")
    assert (refused.status, refused.err) == (0, "")
    assert f"Launchers will delete what has the id {LOST}, if ZooKeeper has no node for it." in refused.out
    assert refused.out.endswith(f"Adopt {LOST}? [N/y] Aborting. Nothing adopted.\n")
    assert stored(znodes) == {"id": OURS, "adopted": []}
    result = nodepool("installation", "adopt", LOST, answer="y\n")
    assert (result.status, result.err) == (0, "")
    assert f"Adopted {LOST}. Launchers clean up" in result.out
    assert nodepool("installation") == Result(0, f"{OURS}\n{LOST} (adopted)\n", "")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["adopt", "lost"], "lost is no id of an installation, which has 16 digits, 0 to 9 and a to f"),
        (["delete"], "installation delete needs the id of an installation, which has 16 digits, 0 to 9 and a to f"),
        (["adopt", OURS], f"{OURS} is an id of this installation: launchers clean up what has it"),
        (["delete", OURS], f"{OURS} is an id of this installation: launchers clean up what has it"),
    ],
)
def test_wrong_id(
    nodepool: CommandLine, znodes: PoolZnodes, ours: dict[str, object], given: list[str], text: str
) -> None:
    assert nodepool("installation", *given, "--force") == Result(1, "", f"{text}\n")
    assert stored(znodes) == ours


class TestDelete:
    @pytest.fixture(autouse=True)
    def cloud(self, simulator: OpenStackSimulator, ours: dict[str, object]) -> None:
        """Things of four installations, an earlier release, and others. ``gone`` is a provider of before."""
        with simulator.cloud() as cloud:
            for name, provider, installation in (
                ("lost", "cloud-a", LOST),
                ("renamed", "gone", LOST),
                ("ours", "cloud-a", OURS),
                ("neighbour", "cloud-a", OTHER),
                ("old", "cloud-a", None),
            ):
                metadata = {"nodepool_provider_name": provider, "nodepool_pool_name": "main", "nodepool_node_id": name}
                cloud.add_server(name, {**metadata, **self.mark(installation)})
            cloud.add_server("stray")
            for name, installation in (("lost", LOST), ("ours", OURS), ("old", None)):
                image = {"nodepool_provider_name": "cloud-b", "nodepool_build_id": "b1", "nodepool_upload_id": name}
                cloud.add_image(f"{name}-image", {**image, **self.mark(installation)})

    @staticmethod
    def mark(installation: str | None) -> dict[str, str]:
        return {"nodepool_installation_id": installation} if installation else {}

    @staticmethod
    def there(simulator: OpenStackSimulator) -> set[str]:
        """Names of servers, and of images that can be private."""
        with simulator.cloud() as cloud:
            servers = {server.name for server in cloud.compute.servers if not server.gone}
            return servers | {image["name"] for image in cloud.images.images if image["name"].endswith("-image")}

    def test_after_a_question(self, clouds: CommandLine, simulator: OpenStackSimulator) -> None:
        """Each thing once, although two providers show it. A cloud that is away does not keep the others."""
        before = self.there(simulator)
        refused = clouds("installation", "delete", LOST)
        assert refused.out.startswith(f"These have the id {LOST}:\n")
        listed = [line for line in refused.out.splitlines() if line.startswith("  ")]
        assert sorted(line.split()[0] for line in listed) == ["image", "instance", "instance"]
        assert refused.out.endswith("Delete 3 thing(s) in the clouds? [N/y] \nAborting. Nothing deleted.\n")
        assert self.there(simulator) == before

        result = clouds("installation", "delete", LOST, answer="y\n")
        assert result.status == 1
        assert "cloud-c" in result.err
        assert "Traceback" not in result.err
        assert result.out.count("Deleting ") == 3
        wait_for("all is deleted", lambda: before - self.there(simulator) == {"lost", "renamed", "lost-image"})

    def test_nothing_has_it(self, clouds: CommandLine, simulator: OpenStackSimulator) -> None:
        before = self.there(simulator)
        result = clouds("installation", "delete", "0" * 16, "--force")
        assert (result.status, result.out) == (1, "")
        text = f"nothing in the clouds of the configuration has the id {'0' * 16} (other ids there: {OTHER}, {LOST})"
        assert result.err.splitlines()[-1] == text
        assert self.there(simulator) == before
