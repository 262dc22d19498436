# SPDX-License-Identifier: Apache-2.0
"""``nodepool check`` with a real ZooKeeper, a simulated cloud and a real sshd (reference/commands 2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.model.status import PoolComponent
from tests.support.command_line import CommandLine
from tests.support.launcher_config import StaticHost, StaticProvider, write_config
from tests.support.openstack_place import Place
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.sshd import SshServer
from tests.support.tables import table
from tests.support.zookeeper import ZooKeeperServer

Rows = list[dict[str, Any]]
Check = Callable[..., tuple[int, Rows]]


@pytest.fixture
def check(place: Place, nodepool: CommandLine) -> Check:
    """Runs it with the sections of ``place`` as they are; exit status and rows."""
    base = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    nodepool.environment["OS_CLIENT_CONFIG_FILE"] = str(place.clouds_file)

    def check(*arguments: str, **changes: Any) -> tuple[int, Rows]:
        settings = {**base, **place.settings(), **changes}
        nodepool.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
        done = nodepool("check", "--format", "json", *arguments)
        assert "Traceback" not in done.err
        return done.status, json.loads(done.out)

    return check


def failed(rows: Rows) -> dict[str, list[str]]:
    """What was looked at -> what was found and what to do."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row["result"] == "failed":
            found.setdefault(row["subject"], []).append(f"{row['text']}; {row['remedy']}")
    return found


def test_all_is_well(place: Place, check: Check) -> None:
    """Nothing is changed, neither in the cloud nor in ZooKeeper."""
    before = place.contents()
    status, rows = check()
    assert failed(rows) == {}
    assert status == 0
    told = {row["subject"]: row for row in rows}
    assert told["connection"]["text"].startswith("connected to 127.0.0.1:")
    assert told["cloud simulator"]["text"].startswith("login works; services: compute, network, image")
    assert told["label small of pool main"]["result"] == "ok"
    assert place.contents() == before
    assert place.znodes.nodes() == {}


def test_all_problems_at_once(place: Place, check: Check) -> None:
    """Of a new operator: flavor, image, key, network, zone and group, in one go, with their remedies."""
    place.section["cloud-images"].append({"name": "gone", "username": "x"})
    place.pool["labels"].append({**place.label, "name": "good"})
    del place.label["min-ram"]
    place.label.update({"flavor-name": "nope", "cloud-image": "gone", "key-name": "mykey", "networks": ["nowhere"]})
    place.pool.update({"availability-zones": ["mars"], "security-groups": ["default", "web"], "max-servers": 5})
    place.simulator.change(quota={"instances": 3})
    status, rows = check()
    assert status == 1
    assert failed(rows) == table(__file__, "problems_of_a_check")
    told = {row["subject"]: row for row in rows}
    assert told["label good of pool main"]["result"] == "ok"
    assert told["quota"]["result"] == "warning"
    assert "may have 3 instances, max-servers of the pools allow 5" in told["quota"]["text"]


def test_label_that_no_launcher_can_keep_ready(place: Place, check: Check, znodes: PoolZnodes) -> None:
    """What another launcher serves is no mistake of this file."""
    labels = [*place.settings()["labels"], {"name": "gpu", "min-ready": 1}]
    status, rows = check(labels=labels)
    assert status == 1
    assert failed(rows) == table(__file__, "problem_of_a_label")
    other = PoolComponent("elsewhere")
    other.id, other.supported_labels = "elsewhere-main", ["gpu"]
    record = json.dumps(other.to_dict()).encode()
    znodes.kazoo.create("/nodepool/components/pool/elsewhere-", record, sequence=True, makepath=True)
    status, rows = check(labels=labels)
    assert (status, failed(rows)) == (0, {})


def test_image_by_id_and_upload(place: Place, check: Check) -> None:
    place.section["cloud-images"].append({"name": "by-id", "image-id": "0000", "username": "x"})
    place.label["cloud-image"] = "by-id"
    place.pool["labels"].append({"name": "built", "diskimage": "built", "min-ram": 512})
    found = failed(check()[1])
    assert "the cloud has no image with the id '0000'" in found["label small of pool main"][0]
    assert "there is no ready upload of it for the label(s) built" in found["diskimage built"][0]


def test_other_installation(place: Place, check: Check, znodes: PoolZnodes) -> None:
    """D-10: a server with the id of another installation, and the provider's name, is a warning; ours are none."""
    ours, other = "0123456789abcdef", "fedcba9876543210"
    znodes.kazoo.create("/nodepool/installation", json.dumps({"id": ours}).encode(), makepath=True)
    with place.simulator.cloud() as cloud:
        servers = [(other, "cloud-a"), (other, "cloud-a"), (ours, "cloud-a"), (other, "elsewhere")]
        for node, (owner, provider) in enumerate(servers):
            tags = {
                "nodepool_provider_name": provider,
                "nodepool_node_id": str(node),
                "nodepool_installation_id": owner,
            }
            cloud.add_server(metadata=tags)
    before = place.contents()
    status, rows = check()
    (row,) = [row for row in rows if row["subject"] == "other installations"]
    assert (status, row["result"]) == (0, "warning")
    assert row["text"] == f"another installation, {other}, has 2 things in the cloud of provider cloud-a"
    assert f"nodepool installation adopt {other}" in row["remedy"]
    assert place.contents() == before
    record = {"provider": "cloud-a", "pool": "main", "other_installations": {other: 5}}
    znodes.kazoo.create("/nodepool/status/pool/l1-main", json.dumps(record).encode(), makepath=True)
    texts = [row["text"] for row in check()[1] if row["subject"] == "other installations"]
    assert texts == [f"another installation, {other}, has 5 things in the cloud of provider cloud-a"]


def test_other_place(check: Check, znodes: PoolZnodes) -> None:
    """D-9: the cloud has none of the instances: is it the right project?"""
    nodes = [
        znodes.add_node("ready", provider="cloud-a", pool="main", type=["small"], external_id=f"server-{number}")
        for number in range(3)
    ]
    status, rows = check()
    (row,) = [row for row in rows if row["subject"] == "instances of nodes"]
    assert (status, row["result"]) == (0, "warning")
    assert row["text"] == f"the cloud of provider cloud-a shows no instance of 3 nodes any more ({', '.join(nodes)})"
    assert "correct the project, region or credentials" in row["remedy"]


def test_login_that_is_refused(place: Place, check: Check) -> None:
    entry = place.clouds["simulator"]
    place.write_clouds(simulator={**entry, "auth": {**entry["auth"], "password": "wrong"}})
    status, rows = check()
    assert status == 1
    (text,) = failed(rows)["cloud simulator"]
    assert "the cloud refuses the login" in text
    assert "check auth_url, user, password" in text
    place.write_clouds(other=entry, simulator=None)
    (text,) = failed(check()[1])["provider cloud-a"]
    assert "clouds.yaml" in text


def test_cloud_that_does_not_answer(place: Place, check: Check) -> None:
    """A service that fails is one that failed; the others are looked at."""
    place.simulator.change(errors=[{"operation": "network.list_networks", "kind": "500"}])
    place.label["key-name"] = "mykey"
    found = failed(check()[1])["label small of pool main"]
    assert any("500" in text for text in found)
    assert any("no key pair 'mykey'" in text for text in found)


def test_zookeeper_away(check: Check) -> None:
    """The cloud is looked at all the same."""
    (port,) = free_ports(1)
    status, rows = check(**{"zookeeper-servers": [{"host": "127.0.0.1", "port": port}]})
    assert status == 1
    (text,) = failed(rows)["connection"]
    assert "(zookeeper-servers[0]): connection refused" in text
    assert [row["result"] for row in rows if row["subject"] == "cloud simulator"] == ["ok"]


def test_only_one_provider(place: Place, check: Check, nodepool: CommandLine) -> None:
    lab = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": []}]}
    _, rows = check("lab", providers=[place.section, lab])
    assert {row["where"] for row in rows} == {"configuration", "zookeeper", "provider lab"}
    done = nodepool("check", "nolab")
    assert done.status == 1
    assert "provider nolab is not in the configuration; there are: cloud-a, lab" in done.err


def test_static_hosts(nodepool: CommandLine, zookeeper: ZooKeeperServer, chroot: str, sshd: SshServer) -> None:
    """Which answer, which do not, and which have another key."""
    (port,) = free_ports(1)
    hosts = [
        StaticHost("127.1.0.1", port=sshd.port, check=True),
        StaticHost("127.1.0.2", port=port, check=True),
        StaticHost("127.1.0.3", port=sshd.port, check=True, host_keys=["ssh-ed25519 AAAA"]),
        StaticHost("nohost.invalid", check=True),
    ]
    write_config(nodepool.config, zookeeper, chroot, [StaticProvider(hosts, name="lab")])
    done = nodepool("check", "--format", "json")
    rows = {row["subject"]: row for row in json.loads(done.out)}
    assert done.status == 1
    assert rows[f"host zuul@127.1.0.1:{sshd.port}"]["result"] == "ok"
    assert "Connection refused" in rows[f"host zuul@127.1.0.2:{port}"]["text"]
    assert "does not have the configured host key" in rows[f"host zuul@127.1.0.3:{sshd.port}"]["text"]
    assert "cannot resolve" in rows["host zuul@nohost.invalid:22"]["text"]
    assert "nodepool: 3 of 6 checks failed" in done.err


def test_configuration_that_is_refused(nodepool: CommandLine, tmp_path: Path) -> None:
    """Nothing else can be looked at."""
    nodepool.config.write_text("labels: [\n", encoding="utf-8")
    done = nodepool("check", "--format", "json")
    (row,) = json.loads(done.out)
    assert (done.status, row["result"], row["where"]) == (1, "failed", "configuration")
    assert "not YAML" in row["text"]
