# SPDX-License-Identifier: Apache-2.0
"""Commands that ask clouds: ``alien-image-list`` (D-3) and ``installation delete`` (D-10, reference/commands 2)."""

from __future__ import annotations

import json

import pytest

from simulators.openstack import OpenStackSimulator
from tests.support.command_line import CommandLine
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

#: Ids of builds, and of installations.
A, B = (letter * 32 for letter in "ab")
OURS, LOST, OTHER = "0123456789abcdef", "fedcba9876543210", "1111222233334444"


def test_aliens(clouds: CommandLine, znodes: PoolZnodes, simulator: OpenStackSimulator) -> None:
    """Images of builders that have no record; each is listed for the provider that it was made for.

    A cloud that is away does not hide the others.
    """

    def in_cloud(build: str, number: int, provider: str) -> str:
        metadata = {"nodepool_build_id": build, "nodepool_upload_id": f"{number:010}"}
        with simulator.cloud() as cloud:
            image = cloud.images.add_active(f"debian-{number}")
            image.update({**metadata, "nodepool_provider_name": provider})
            return str(image["id"])

    znodes.add_build("debian", A)
    znodes.add_upload("debian", A, "cloud-a", 1, external_id=in_cloud(A, 1, "cloud-a"))
    znodes.add_upload("debian", A, "cloud-a", 2, state="uploading", external_id=None)
    in_cloud(A, 2, "cloud-a")
    lost, others = in_cloud(B, 1, "cloud-a"), in_cloud(A, 1, "cloud-b")
    result = clouds("alien-image-list", "cloud-a")
    assert (result.status, result.err) == (0, "")
    headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
    assert headers == ["Provider", "Name", "Image ID"]
    assert result.rows == [["cloud-a", "debian-1", lost]]
    assert json.loads(clouds("alien-image-list", "cloud-b", "--format", "json").out) == [
        {"provider": "cloud-b", "name": "debian-1", "image_id": others}
    ]
    result = clouds("alien-image-list")
    assert (result.status, result.rows) == (1, [["cloud-a", "debian-1", lost], ["cloud-b", "debian-1", others]])
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err


@pytest.fixture
def installations(simulator: OpenStackSimulator, znodes: PoolZnodes) -> None:
    """Things of three installations, an earlier release, and others. ``former`` is a provider of before."""
    record = {"id": OURS, "adopted": []}
    znodes.kazoo.create("/nodepool/installation", json.dumps(record).encode(), makepath=True)

    def mark(installation: str | None) -> dict[str, str]:
        return {"nodepool_installation_id": installation} if installation else {}

    with simulator.cloud() as cloud:
        for name, provider, installation in (
            *(("lost", "cloud-a", LOST), ("renamed", "former", LOST), ("ours", "cloud-a", OURS)),
            *(("neighbour", "cloud-a", OTHER), ("old", "cloud-a", None)),
        ):
            metadata = {"nodepool_provider_name": provider, "nodepool_pool_name": "main", "nodepool_node_id": name}
            cloud.add_server(name, {**metadata, **mark(installation)})
        cloud.add_server("stray")
        for name, installation in (("lost", LOST), ("ours", OURS), ("old", None)):
            image = {"nodepool_provider_name": "cloud-b", "nodepool_build_id": "b1", "nodepool_upload_id": name}
            cloud.add_image(f"{name}-image", {**image, **mark(installation)})


@pytest.mark.usefixtures("installations")
def test_deletion_of_another_installation(clouds: CommandLine, simulator: OpenStackSimulator) -> None:
    """After a question. Each thing once, although two providers show it. A cloud that is away keeps no other."""

    def there() -> set[str]:
        """Names of servers, and of images that can be private."""
        with simulator.cloud() as cloud:
            servers = {server.name for server in cloud.compute.servers if not server.gone}
            return servers | {image["name"] for image in cloud.images.images if image["name"].endswith("-image")}

    before = there()
    result = clouds("installation", "delete", "0" * 16, "--force")
    assert (result.status, result.out) == (1, "")
    text = f"nothing in the clouds of the configuration has the id {'0' * 16} (other ids there: {OTHER}, {LOST})"
    assert result.err.splitlines()[-1] == text
    refused = clouds("installation", "delete", LOST)
    assert refused.out.startswith(f"These have the id {LOST}:\n")
    listed = [line for line in refused.out.splitlines() if line.startswith("  ")]
    assert sorted(line.split()[0] for line in listed) == ["image", "instance", "instance"]
    assert refused.out.endswith("Delete 3 thing(s) in the clouds? [N/y] \nAborting. Nothing deleted.\n")
    assert there() == before
    result = clouds("installation", "delete", LOST, answer="y\n")
    assert result.status == 1
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err
    assert result.out.count("Deleting ") == 3
    wait_for("all is deleted", lambda: before - there() == {"lost", "renamed", "lost-image"})
