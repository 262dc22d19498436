# SPDX-License-Identifier: Apache-2.0
"""CA: a new image is tried by some launches first, and is used by all or by none then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.zk import transactions
from nodepool.zk.images import ImageStore
from tests.clouds.site import Site
from tests.support.sshd import SshServer

pytestmark = pytest.mark.parametrize("site", ["openstack"], indirect=True)

IMAGES = "/nodepool/images/built/builds"
#: External ids of the image in use and of the new one.
OLD, NEW = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
PROMOTION = {"canary": 0.3, "seconds": 7200.0, "min_nodes": 5, "max_failure_ratio": 1.5}


def path(build: str) -> str:
    return f"{IMAGES}/{build}/providers/cloud-a/images/0000000001"


def record(site: Site, build: str) -> dict[str, Any]:
    found: dict[str, Any] = site.znodes.read(path(build)) or {}
    return found


def evidence(site: Site) -> dict[str, Any]:
    """What is stored of the candidate; empty = nothing."""
    names = site.znodes.children("/nodepool/canaries")
    return (site.znodes.read(f"/nodepool/canaries/{names[0]}") or {}) if names else {}


def begin(site: Site, sshd: SshServer | None = None, **promotion: Any) -> None:
    """A launcher, with the image in use and a candidate. A request has one attempt."""
    site.section = {"diskimages": [{"name": "built"}], **site.section, "launch-retries": 1}
    given = site.diskimages[0] if site.diskimages else {"name": "built"}
    site.diskimages = [{**given, "username": "zuul" if sshd is None else sshd.user}]
    site.label.clear()
    key = str(sshd.client_key) if sshd is not None else None
    site.label.update({"name": "small", "diskimage": "built", "min-ram": 512, "ready-check-key": key})
    with site.cloud.simulator.cloud() as cloud:
        for name in (OLD, NEW):
            cloud.images.images.add({**cloud.add_image(name), "id": name})
    now = site.clock.wall_time()
    candidate: dict[str, Any] = {"candidate": PROMOTION | promotion}
    for build, external_id, more in (("b1", OLD, dict[str, Any]()), ("b2", NEW, candidate)):
        site.znodes.add_build("built", build, state_time=now - (40 if build == "b1" else 20))
        time = now - 30 - (0.001 if more else 0.0)
        site.znodes.add_upload("built", build, "cloud-a", external_id=external_id, state_time=time, **more)
    site.launch()
    site.wait("the candidate is tried", lambda: site.znodes.children("/nodepool/canaries"))


def add_next(site: Site, **promotion: Any) -> str:
    """Another candidate; returns its build."""
    site.znodes.add_build("built", "b3", state_time=site.clock.wall_time() - 5)
    site.znodes.add_upload("built", "b3", "cloud-a", external_id=NEW, state_time=1.0, candidate=PROMOTION | promotion)
    return "b3"


def begin_next(site: Site, **promotion: Any) -> str:
    """The same when the one before has ended."""
    build = add_next(site, **promotion)
    site.wait("the next one is tried", lambda: evidence(site))
    return build


def run(site: Site, jobs: int, seconds: Callable[[str], float], build: str = "b2") -> Counter[str]:
    """At most so many jobs, until the candidate has ended; none fails for want of a node. Returns builds of nodes.

    :param seconds: how long a job runs on a node of a build.
    """
    made: Counter[str] = Counter()
    while made.total() < jobs and "verdict" not in record(site, build):
        requests = [site.submit() for _ in range(8)]
        nodes = {name: node["image_id"].split("/")[5] for name, node in site.fulfilled(*requests).items()}
        made.update(nodes.values())
        for name in nodes:
            site.use(name)
            site.znodes.change_node(name, state_time=site.clock.wall_time())
        for name, of in nodes.items():
            site.znodes.change_node(name, state="used", state_time=site.clock.wall_time() + seconds(of))
            site.release(name)
        for request in requests:
            site.znodes.delete_request(request)
        # What was counted is stored now and then.
        site.clock.pass_seconds(3.0)
    return made


def is_over(site: Site) -> bool:
    site.wait("its record is removed", lambda: not site.znodes.children("/nodepool/canaries"))
    return "verdict" in record(site, "b2")


def test_image_that_does_not_boot(site: Site) -> None:
    """CA-2, CA-3, CA-5: no request fails, although it has one attempt; the image is rolled back with the numbers."""
    begin(site)
    site.cloud.change(boots=[{"kind": "error", "image": NEW}])
    made = run(site, 200, lambda _: 90.0)
    assert set(made) == {"b1"}
    assert is_over(site)
    found = record(site, "b2")
    assert (found["state"], found["rolled_back"], "candidate" in found) == ("ready", True, False)
    assert found["state_time"] < record(site, "b1")["state_time"]
    assert "nodes failed (100.0 %)" in found["verdict"]
    assert site.znodes.kazoo.exists("/nodepool/images/built/pause")


def test_good_image(site: Site) -> None:
    """CA-1, CA-2, CA-4: some launches try it; when its time is over it is the newest, for every release.

    A newer candidate waits for that: where images are built more often than tried, none would ever be used.
    """
    begin(site)
    add_next(site)
    made = run(site, 48, lambda _: 90.0)
    assert made["b1"] > made["b2"] >= 5
    assert "; build b3 waits for the end of that" in site.command("explain", "built")
    assert "candidate" in record(site, "b2")
    site.clock.pass_seconds(7200.0)
    site.wait("the next one is tried", lambda: "/b2/" in evidence(site).get("control", ""), hurry=0.5)
    found = record(site, "b2")
    assert found["state_time"] > record(site, "b1")["state_time"]
    assert "rolled_back" not in found
    assert "candidate" in record(site, "b3")
    site.command("image-rollback", "cloud-a", "built")
    assert set(run(site, 8, lambda _: 90.0, "b1")) == {"b2"}


def test_image_that_dies_in_use(site: Site) -> None:
    """CA-3: its nodes boot, and are given back within a minute."""
    begin(site)
    made = run(site, 200, lambda build: 5.0 if build == "b2" else 90.0)
    assert made["b2"] < 40
    assert is_over(site)
    assert "given back early" in record(site, "b2")["verdict"]


@pytest.mark.parametrize(("command", "good"), [("true", True), ("echo no compiler; exit 3", False)])
def test_check(site: Site, sshd: SshServer, command: str, good: bool) -> None:
    """CA-7: one node of the image runs the command first; no job gets it. A failure ends the image."""
    site.section["diskimages"] = [{"name": "built", "connection-port": sshd.port}]
    site.pool["host-key-checking"] = True
    site.section["boot-timeout"] = 3000
    begin(site, sshd, check=command)
    site.wait("the check has ended", lambda: evidence(site).get("step") != "check")
    site.wait("its node is deleted", lambda: not site.znodes.nodes(), hurry=0.5)
    assert not site.znodes.children("/nodepool/requests")
    assert site.cloud.made == 1
    found = record(site, "b2")
    assert ("candidate" in found, "rolled_back" in found) == (good, not good)
    if not good:
        assert found["verdict"] == "its check failed: ready-check ended with exit code 3: no compiler"
        assert site.znodes.kazoo.exists("/nodepool/images/built/pause")


def test_commands(site: Site) -> None:
    """CA-8: who looks sees what is counted, and what is missing; an operator decides at any time."""
    begin(site)
    run(site, 24, lambda _: 90.0)
    told = "build b2 is a candidate: 0 of "
    site.wait("it is explained", lambda: told in site.command("explain", "built"), hurry=0.5)
    shown = site.command("explain", "built")
    assert "Missing: 1 h" in shown
    assert "image-promote cloud-a built" in shown
    assert " candidate " in site.command("image-list", "--detail")
    assert "uses upload 0000000001 of build built-b2" in site.command("image-promote", "cloud-a", "built")
    assert is_over(site)
    assert record(site, "b2")["state_time"] > record(site, "b1")["state_time"]
    begin_next(site)
    assert "does not try any more" in site.command("image-rollback", "cloud-a", "built")
    assert record(site, "b3")["rolled_back"]
    assert "uses upload 0000000001 of build built-b1 again" in site.command("image-rollback", "cloud-a", "built")
    # It is no candidate that was rolled back.
    assert ("rolled_back" in record(site, "b2"), "verdict" in record(site, "b2")) == (True, False)
    site.wait("it is shown", lambda: "was rolled back: rolled back by" in site.command("explain", "built"), hurry=0.5)
    site.wait("it is an event", lambda: "rolled back by" in site.command("events"), hurry=0.5)


def test_several_launchers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """CA-3, CA-6: each node counts once, whoever stops; lost answers, and others who decide, change nothing."""
    begin(site)
    site.launch()
    made = run(site, 48, lambda _: 90.0)

    def counted() -> int:
        own = evidence(site).get("launchers", {}).values()
        return sum(arms[arm]["launched"] for arms in own for arm in ("candidate", "control"))

    site.wait("all are counted", lambda: counted() == made.total())
    failed: list[bool] = []

    def fail_once(*arguments: Any) -> Any:
        if not failed:
            failed.append(True)
            raise ZKConflict("others write it, too")
        return replace(*arguments)

    replace = transactions.replace
    monkeypatch.setattr(transactions, "replace", fail_once)
    site.wait("it could not be stored", lambda: failed, hurry=0.5)
    made += run(site, 8, lambda _: 90.0)
    site.wait("all are counted", lambda: counted() == made.total(), hurry=0.5)
    site.launchers.pop(0).stop()
    made += run(site, 24, lambda _: 90.0)
    site.launch()
    made += run(site, 24, lambda _: 90.0)
    site.wait("all are counted", lambda: counted() == made.total())
    # A broken record is begun anew.
    (name,) = site.znodes.children("/nodepool/canaries")
    site.znodes.kazoo.set(f"/nodepool/canaries/{name}", b"[]")
    site.wait("it is written anew", lambda: evidence(site))
    end, lost = ImageStore.end_candidacy, [True]

    def end_without_answer(*arguments: Any, **more: Any) -> None:
        end(*arguments, **more)
        if lost:
            lost.pop()
            raise ZKConnectionError("no answer")

    monkeypatch.setattr(ImageStore, "end_candidacy", end_without_answer)
    site.znodes.kazoo.create("/nodepool/canaries/leftover", b"{}", makepath=True)
    site.clock.pass_seconds(7200.0)
    run(site, 48, lambda _: 90.0)
    site.wait("it is promoted", lambda: "verdict" in record(site, "b2"))
    assert not lost
    assert "rolled_back" not in record(site, "b2")
    site.wait("no record is left", lambda: not site.znodes.children("/nodepool/canaries"), hurry=5.0)


def test_newer_image_in_use(site: Site) -> None:
    """CA-1, CA-5, CA-7: a candidate that cannot be checked says so; it never takes the place of a newer image."""
    begin(site, check="true")
    site.wait("it is explained", lambda: "no label of the provider" in site.command("explain", "built"), hurry=0.5)
    node = {"provider": "cloud-a", "pool": "main", "type": ["small"], "image_id": path("b2")}
    now = site.clock.wall_time()
    site.znodes.add_build("built", "b3", state_time=now)
    site.znodes.add_upload("built", "b3", "cloud-a", external_id=NEW, state_time=now)
    assert is_over(site)
    found = record(site, "b2")
    assert (found["rolled_back"], found["verdict"]) == (True, "the newer build b3 is ready in cloud-a")
    assert not site.znodes.kazoo.exists("/nodepool/images/built/pause")
    # Of a launch that had begun, and a check that a launcher requested which did not know yet.
    site.znodes.add_node(state="ready", **node)
    site.fulfilled(site.submit(requestor="NodePool:canary", requestor_data={"upload": path("b2")}))
    site.wait("nothing is left", lambda: not site.znodes.nodes(), hurry=5.0)
    assert not site.znodes.children("/nodepool/requests")


def test_check_by_a_job(site: Site) -> None:
    """CA-10: a job gets a node of the candidate by its label, and only of it; when it was used, launches try it."""
    site.diskimages = [{"name": "built", "promote": {"check": "label"}}]
    begin(site, check="label")
    assert "no job has used a node" in site.command("explain", "built")
    old, new = site.submit(), site.submit(label="small@candidate")
    ((name, node),) = site.fulfilled(new).items()
    assert ("/b2/" in node["image_id"], node["type"]) == (True, ["small@candidate"])
    assert all("/b1/" in one["image_id"] for one in site.fulfilled(old).values())
    assert evidence(site)["step"] == "check"
    site.use(name)
    site.znodes.change_node(name, state="used")
    site.release(name)
    site.wait("launches try it", lambda: evidence(site).get("step") == "canary", hurry=0.5)
    unused = site.submit(label="small@candidate")
    (spare,) = site.fulfilled(unused)
    site.znodes.delete_request(unused)
    site.command("image-promote", "cloud-a", "built")
    # A job that asks for the next candidate would check this one.
    site.wait("it is not kept for the next one", lambda: spare not in site.znodes.nodes(), hurry=5.0)
    late = site.submit(label="small@candidate")
    site.failed(late)
    assert "candidate" not in site.command("status")
    site.wait("the first one has ended", lambda: not evidence(site), hurry=0.5)
    bad = begin_next(site, check="label")
    site.cloud.change(boots=[{"kind": "error", "image": NEW}])
    site.failed(site.submit(label="small@candidate"))
    site.wait("it is rolled back", lambda: "its check failed" in record(site, bad).get("verdict", ""), hurry=0.5)
