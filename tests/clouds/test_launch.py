# SPDX-License-Identifier: Apache-2.0
"""The life of nodes in every cloud that does what it is asked for, and instances that do not come up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clouds.site import Site
from tests.support.sshd import SshServer


def test_life_of_a_node(site: Site) -> None:
    """L-12, X-3: what the records say, that there is one instance for each node, and that all of it goes."""
    site.pool["node-attributes"] = {"team": "ci"}
    site.launch()
    request = site.submit(2)
    nodes = site.fulfilled(request)
    instances = site.cloud.instances()
    assert len(nodes) == 2
    for name, node in nodes.items():
        assert site.cloud.instance_of(node) == instances[name]
        assert (node["provider"], node["pool"], node["type"]) == ("cloud-a", "main", ["small"])
        assert (node["state"], node["allocated_to"]) == ("ready", request)
        assert node["attributes"] == {"team": "ci"}
        assert node["launcher"]
        assert not site.znodes.node_lockers(name)
    assert len({node["az"] for node in nodes.values()}) == 1, "N-7: all nodes of a request are in one zone"
    assert not site.znodes.request_lockers(request)
    site.give_back(request)
    site.wait_empty()
    assert site.cloud.made == 2


def test_many_nodes(site: Site) -> None:
    """Each node takes one creation and one deletion, whatever else there is."""
    # Azure's simulator refuses each fifth call otherwise, as something else is under way.
    site.cloud.change(by_turns=False)
    with site.served(12) as found:
        assert len({site.cloud.instance_of(node) for _, node in found}) == 12
    assert site.cloud.made == 12
    assert site.cloud.calls("create") <= 12
    assert site.cloud.calls("delete") <= 12


def test_host_keys(site: Site, sshd: SshServer) -> None:
    """K-2: a node is ready when its keys are known; one without an answer is not given out, and is launched again."""
    if not site.cloud.scanned:
        pytest.skip("nodes of this cloud are not reached over SSH")
    site.pool["host-key-checking"] = True
    site.section |= {"launch-retries": 2, "boot-timeout": 20}
    dead = {**site.section["cloud-images"][0], "name": "dead", "connection-port": 9}
    site.section["cloud-images"].append(dead)
    site.pool["labels"].append({**site.label, "name": "dead", "cloud-image": "dead"})
    has_console = site.cloud.name != "ibmvpc"
    if has_console:
        site.pool["labels"][-1]["console-log"] = True
    site.launch()
    request, unreachable = site.submit(), site.submit(label="dead")
    (node,) = site.fulfilled(request).values()
    assert sorted(node["host_keys"]) == sorted(sshd.host_keys)
    assert node["connection_port"] == sshd.port
    assert node["interface_ip"]
    site.failed(unreachable, hurry=0.5)
    if has_console:
        # L-16: also of a node that does not exist any more.
        told = r"nodepool explain (\d+) shows the end of its console"
        site.wait("it has a console", lambda: re.search(told, site.command("explain", unreachable)), hurry=0.5)
        found = re.search(told, site.command("explain", unreachable))
        assert found is not None
        assert re.search(r"End of its console:\n  .+\n  \S+ login:", site.command("explain", found[1]))
    site.give_back(request)
    site.wait_empty()
    assert site.cloud.made == 3


def test_ready_check(site: Site, sshd: SshServer, tmp_path: Path) -> None:
    """K-7, L-18: a node is ready when its check has ended; a launcher that stops meanwhile does not end it.

    A node whose check fails is launched again, and the reason is the end of the output.
    """
    if not site.cloud.scanned:
        pytest.skip("nodes of this cloud are not reached over SSH")
    site.section |= {"launch-retries": 2}
    for image in site.section["cloud-images"]:
        image["username"] = sshd.user
    waits = f"touch {tmp_path}/runs; until test -e {tmp_path}/end; do sleep 0.1; done"
    site.label.update({"host-key-checking": True, "ready-check": waits, "ready-check-key": str(sshd.client_key)})
    site.pool["labels"].append({**site.label, "name": "bad", "ready-check": "echo no disk; exit 3"})
    site.launch()
    request = site.submit()
    site.wait("its check runs", (tmp_path / "runs").exists)
    site.wait("the step is shown", lambda: "ready-check" in site.command("explain", request), hurry=0.5)
    site.stop()
    assert not any(node["host_keys"] for node in site.znodes.nodes().values())
    site.launch()
    (tmp_path / "end").touch()
    (node,) = site.fulfilled(request).values()
    assert sorted(node["host_keys"]) == sorted(sshd.host_keys)
    bad = site.submit(label="bad")
    # Not in a hurry: the check is a process of the machine, which a quick clock would not leave enough time.
    site.failed(bad)
    reason = "ready-check ended with exit code 3: no disk"
    site.wait("the reason is known", lambda: reason in site.command("explain", bad), hurry=0.5)
    site.give_back(request)
    site.wait_empty()
    assert site.cloud.made == 1 + 2


def test_max_servers(site: Site) -> None:
    """Q: a pool never has more than its limit; what waits is served later."""
    site.pool["max-servers"] = 2
    site.run(6)
    assert site.cloud.most_instances == 2


def test_min_ready(site: Site) -> None:
    """Nodes are kept ready, taken by requests, and made anew."""
    site.labels["small"] = {"min-ready": 2}
    site.launch()
    site.wait("two are ready", lambda: len(site.znodes.free_nodes()) == 2)
    ready = set(site.znodes.free_nodes())
    request = site.submit()
    assert set(site.fulfilled(request)) <= ready
    site.wait("two are ready again", lambda: len(site.znodes.free_nodes()) == 2)
    site.labels["small"] = {"min-ready": 0}
    site.rewrite()
    site.give_back(request)

    def deleted() -> bool:
        for name in site.znodes.free_nodes():
            site.znodes.change_node(name, state="deleting")
        return not site.znodes.nodes()

    site.wait("all are deleted", deleted)
    site.wait_empty()


def test_boots_that_fail(site: Site) -> None:
    """L-4: what did not come up is deleted, and tried again; the last attempt fails the request."""
    site.section["launch-retries"] = 2
    site.cloud.fail_boots("failed", count=1)
    site.launch()
    first = site.submit()
    site.fulfilled(first)
    site.give_back(first)
    site.cloud.fail_boots("failed")
    site.failed(site.submit())
    site.wait_empty(hurry=1.0)
    assert site.cloud.made == 2 + 2


def test_boots_that_take_too_long(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """L-4: ``launch-timeout`` ends an attempt; its instance goes."""
    site.section["launch-timeout"] = 60
    site.cloud.fail_boots("stuck", count=1)
    site.launch()
    request = site.submit()
    site.wait("it boots", site.cloud.instances)
    assert site.state(request) == "pending"
    site.fulfilled(request, hurry=1.0)
    assert site.cloud.made == 2
    assert "no instance within launch-timeout of 60 s, it got as far as" in caplog.text
    site.cloud.release()
    site.give_back(request)
    site.wait_empty(hurry=1.0)


def test_request_that_is_withdrawn(site: Site) -> None:
    """L-11: the node of a request that vanished while it was launched is kept for others."""
    site.cloud.boots_take(5.0)
    site.launch()
    request = site.submit()
    site.wait("it boots", site.cloud.instances)
    site.znodes.delete_request(request)
    site.wait("the node is free", site.znodes.free_nodes)
    other = site.submit()
    site.fulfilled(other)
    site.give_back(other)
    site.wait_empty()
    assert site.cloud.made == 1


def test_node_that_is_taken_away(site: Site) -> None:
    """A node whose record vanishes in the middle of its launch leaves no instance."""
    site.cloud.boots_take(5.0)
    site.launch()
    request = site.submit()
    site.wait("it boots", site.cloud.instances)
    (name,) = site.znodes.nodes()
    site.znodes.vanish(name)
    site.wait("the request is over", lambda: site.state(request) in ("fulfilled", "failed"), hurry=0.5)
    site.give_back(request)
    site.wait_empty(hurry=1.0)


def test_reload_in_the_middle(site: Site) -> None:
    """G-5: a launch goes on when its provider gets another configuration."""
    site.cloud.boots_take(5.0)
    site.launch()
    first = site.submit()
    site.wait("it boots", site.cloud.instances)
    site.pool["node-attributes"] = {"team": "ci"}
    site.rewrite()
    site.fulfilled(first)
    second = site.submit()

    def changed() -> bool:
        (node,) = site.fulfilled(second).values()
        return bool(node["attributes"])

    site.wait("the new configuration counts", changed)
    site.give_back(first, second)
    site.wait_empty()
    assert site.cloud.made == 2


def test_label_without_image(site: Site) -> None:
    """F: a label that cannot be launched fails its own requests, and no others."""
    if site.cloud.name == "kubernetes":
        pytest.skip("a cluster takes an image as it is called")
    site.section["launch-retries"] = 1
    site.section["cloud-images"].append(site.cloud.missing_image(site.section["cloud-images"][0]))
    site.pool["labels"].append({**site.label, "name": "broken", "cloud-image": "missing"})
    site.launch()
    broken, request = site.submit(label="broken"), site.submit()
    site.fulfilled(request)
    site.failed(broken, hurry=0.5)
    site.give_back(request)
    site.wait_empty()
