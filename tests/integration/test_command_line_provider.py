# SPDX-License-Identifier: Apache-2.0
"""``nodepool info`` and ``nodepool erase``, against a real ZooKeeper with TLS (reference/commands 2)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.command_line import CommandLine
from tests.support.pool_znodes import PoolZnodes


@pytest.fixture
def upload(znodes: PoolZnodes) -> str:
    """An image with a build that is uploaded to the providers lab and other; the build's path."""
    build = "/nodepool/images/img/builds/0123456789abcdef0123456789abcdef"
    record = json.dumps({"state": "ready", "state_time": 1.0}).encode()
    znodes.kazoo.create(build, record, makepath=True)
    for provider in ("lab", "other"):
        znodes.kazoo.create(f"{build}/providers/{provider}/images/0000000001", record, makepath=True)
    znodes.kazoo.create("/nodepool/images/img/builds/lock", b"", makepath=True)
    return build


class TestProvider:
    def test_info(self, nodepool: CommandLine, add_node: Callable[..., str], upload: str) -> None:
        """reference/commands 2: two tables."""
        node_id = add_node()
        add_node(provider="other")
        result = nodepool("info", "lab")
        assert result.out.startswith("ZooKeeper data for provider lab\n\nImage data:\n+")
        build_id = upload.rsplit("/", 1)[1]
        assert ["img", build_id, "0000000001"] in result.rows
        assert [node_id, "host-1"] in result.rows
        assert json.loads(nodepool("info", "lab", "--format", "json").out) == {
            "images": [{"image": "img", "build_id": build_id, "upload_ids": ["0000000001"]}],
            "nodes": [{"id": node_id, "server_id": "host-1"}],
        }

    def test_without_uploads(self, nodepool: CommandLine, znodes: PoolZnodes, upload: str) -> None:
        """Builds whose uploads to the provider are gone, or that cannot be read, are listed and erased."""
        builds = upload.rsplit("/", 1)[0]
        znodes.kazoo.create(f"{builds}/0000000002", b'{"state": "ready"}')
        znodes.kazoo.create(f"{builds}/0000000002/providers/lab/images/lock", b"", makepath=True)
        znodes.kazoo.create(f"{builds}/0000000003/providers/lab/images/0000000007", b"", makepath=True)
        rows = [row for row in nodepool("info", "lab").rows if row[0] == "img"]
        assert sorted(rows) == [
            ["img", "0000000002", ""],
            ["img", "0000000003", "0000000007"],
            ["img", upload.rsplit("/", 1)[1], "0000000001"],
        ]
        assert nodepool("erase", "lab", "--force").status == 0
        assert not any(row[0] == "img" for row in nodepool("info", "lab").rows)

    @pytest.mark.parametrize("answer", ["n\n", "\n", ""])
    def test_erase_asks(
        self, nodepool: CommandLine, add_node: Callable[..., str], znodes: PoolZnodes, answer: str
    ) -> None:
        node_id = add_node()
        result = nodepool("erase", "lab", answer=answer)
        assert result.status == 0
        assert "Erase ZooKeeper data for provider lab? [N/y]" in result.out
        assert result.out.endswith("Aborting. No data erased.\n")
        assert znodes.node(node_id) is not None

    @pytest.mark.parametrize(("arguments", "answer"), [(["--force"], ""), ([], "y\n")])
    def test_erase(
        self,
        nodepool: CommandLine,
        add_node: Callable[..., str],
        upload: str,
        znodes: PoolZnodes,
        arguments: list[str],
        answer: str,
    ) -> None:
        """Nodes and uploads of this provider go, nothing else."""
        mine, other = add_node(), add_node(provider="other")
        result = nodepool("erase", "lab", *arguments, answer=answer)
        assert result.status == 0
        assert result.out.endswith("Erasing build data for lab...\nErasing node data for lab...\n")
        assert znodes.node(mine) is None
        assert znodes.node(other) is not None
        assert znodes.children(f"{upload}/providers") == ["other"]


@pytest.mark.parametrize("arguments", [("info", "lba"), ("erase", "lba", "--force")])
def test_a_provider_that_nobody_knows(nodepool: CommandLine, arguments: tuple[str, ...]) -> None:
    """reference/commands 2.2: a typing error, most likely."""
    result = nodepool(*arguments)
    assert (result.status, result.out) == (1, "")
    assert result.err == "there is no provider lba, did you mean 'lab'? (there are: lab)\n"
