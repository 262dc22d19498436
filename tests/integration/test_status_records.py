# SPDX-License-Identifier: Apache-2.0
"""What a running launcher tells: its status records in ZooKeeper (rules W), and ``nodepool explain`` (E-10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.clock import wall_time
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher import status as launcher_status_module
from nodepool.model.status import LauncherStatus
from nodepool.plan import attention
from nodepool.runtime import worker
from nodepool.zk import status
from tests.support.command_line import CommandLine
from tests.support.local_launcher import LocalLauncher, fake_provider, launcher_settings
from tests.support.openstack_place import Place
from tests.support.pool_status import POOLS, pool_status, until
from tests.support.pool_znodes import COMPONENTS, PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

LAUNCHERS = "/nodepool/status/launcher"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers look at their pools more often than they do else."""
    monkeypatch.setattr(worker, "REPORT_PACE_SECONDS", 0.1)
    for module in (worker, launcher_status_module):
        monkeypatch.setattr(module, "REPORT_SECONDS", 0.1)


@pytest.fixture
def launcher(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, cloud: FakeCloud) -> Iterator[LocalLauncher]:
    """One with two providers."""
    providers = [fake_provider(name, cloud=cloud.name, pool_max_servers=1) for name in ("one", "two")]
    made = LocalLauncher(tmp_path / "nodepool.yaml", zookeeper, chroot, launcher_settings(providers, None, {}))
    made.start()
    yield made
    made.stop()


def launcher_status(znodes: PoolZnodes) -> LauncherStatus | None:
    names = znodes.children(LAUNCHERS)
    if len(names) != 1:
        return None
    return LauncherStatus.of_record(status.decode(znodes.kazoo.get(f"{LAUNCHERS}/{names[0]}")[0]))


def components(znodes: PoolZnodes) -> dict[str, tuple[int, int]]:
    """When each znode of the registry, or its children, changed last: whoever watches them would be told."""
    found: dict[str, tuple[int, int]] = {}

    def walk(path: str) -> None:
        stat = znodes.kazoo.exists(path)
        found[path] = (stat.mzxid, stat.pzxid)
        for name in znodes.children(path):
            walk(f"{path}/{name}")

    walk(COMPONENTS)
    return found


def test_life(launcher: LocalLauncher, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """W-1, W-2, W-5, W-6: what a pool is doing, from start to end."""
    idle = until(znodes, "one", lambda told: told.state == "running")
    assert (idle.driver, idle.pool, idle.waiting, idle.requests) == ("fake", "main", (), ())
    assert [(limit.scope, limit.resource, limit.limit, limit.used) for limit in idle.limits] == [
        ("pool", "instances", 1, 0)
    ]
    cloud.set(hang=True)
    ids = [znodes.submit(["small"], provider="one") for _ in range(3)]
    full = until(znodes, "one", lambda told: told.state == "paused" and told.launches.running == 1)
    assert (full.code, full.limits[0].used) == ("room.instances", 1)
    assert [request.id for request in full.requests] == ids[:2]
    (kind,) = full.waiting
    assert (kind.labels, kind.provider, kind.tenant, kind.count) == (("small",), "one", "tenant", 1)
    assert kind.oldest == (znodes.request(ids[2]) or {})["created_time"]
    assert kind.code.startswith(("wait.", "room."))
    cloud.set(hang=False)
    served = until(znodes, "one", lambda told: told.launches.ok_15m == 1)
    assert served.launches.failed_15m == 0
    launcher.stop()
    assert (znodes.children(POOLS), znodes.children(LAUNCHERS)) == ([], [])
    launcher.start = lambda: None  # type: ignore[method-assign]


def test_watches_of_others(launcher: LocalLauncher, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """W-1: records change, and nothing in the registry, where launchers of 11.0.0 and Zuul have their watches."""
    until(znodes, "one", lambda told: told.state == "running")
    wait_for("the launcher is registered", lambda: znodes.children(f"{COMPONENTS}/launcher"))
    before = components(znodes)
    znodes.submit(["unknown"])
    until(znodes, "one", lambda told: bool(told.declined))
    assert components(znodes) == before


def test_pool_that_retires(launcher: LocalLauncher, znodes: PoolZnodes) -> None:
    """W-1: its record goes with it; the launcher tells of the other, and of the reload."""
    until(znodes, "two", lambda told: told.state == "running")
    wait_for("the launcher tells, too", lambda: launcher_status(znodes) is not None)
    digest = (launcher_status(znodes) or LauncherStatus()).config
    assert len(digest) == 12
    del launcher.settings["providers"][1]
    launcher.write(launcher.settings)
    wait_for("its record goes", lambda: pool_status(znodes, "two") is None)
    found: list[LauncherStatus] = []

    def told() -> bool:
        found.append(launcher_status(znodes) or LauncherStatus())
        return found[-1].reload is not None and found[-1].pools == ("one/main",)

    wait_for("the launcher tells it", told)
    assert found[-1].config != digest
    assert found[-1].reload is not None
    assert found[-1].reload.ok
    assert "started" in [event.what for event in found[-1].events]


# -- of pools of clouds: a launcher with the OpenStack driver and a simulated cloud


def test_limits(place: Place) -> None:
    """W-3: of the pool, of the provider and of the cloud, with what others use."""
    place.pool["max-servers"] = 1
    place.section["max-concurrency"] = 7
    place.launch()
    place.fulfilled(place.znodes.submit(["small"]))
    place.znodes.submit(["small"])
    told = until(place.znodes, "cloud-a", lambda told: told.state == "paused" and told.launches.ok_15m == 1)
    assert (told.code, told.driver) == ("room.instances", "openstack")
    limits = {(limit.scope, limit.resource): limit for limit in told.limits}
    assert (limits["pool", "instances"].limit, limits["pool", "instances"].used) == (1, 1)
    assert (limits["provider", "launches"].limit, limits["provider", "launches"].used) == (7, 0)
    cores = limits["cloud", "cores"]
    assert (cores.used, cores.others) == (1, 0)
    assert cores.limit is not None
    assert cores.asked_at is not None
    assert wall_time() - 600 < cores.asked_at <= wall_time()


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"min-ram": 10**9}, "label.broken", "no flavor"),
        (
            {"cloud-image": "nothing"},
            "image.missing",
            "no usable image 'gone' for cloud-image 'nothing'; ",
        ),
    ],
    ids=["flavor", "image"],
)
def test_label_that_cannot_work(place: Place, change: dict[str, object], code: str, text: str) -> None:
    """W-4, J-3: the cause is told until it is mended, also when nobody asks; requests are declined with it."""
    place.section["cloud-images"].append({"name": "nothing", "image-name": "gone"})
    place.label.update(change)
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    found = until(place.znodes, "cloud-a", lambda told: "small" in told.labels).labels["small"]
    assert (found.code, text in found.text) == (code, True)
    assert wall_time() - 600 < found.since <= wall_time()
    (declined,) = until(place.znodes, "cloud-a", lambda told: bool(told.declined)).declined
    assert declined.text.endswith(f"; small: {found.text}")


def test_circuit_breaker(place: Place) -> None:
    """W-2: since when it is open, why, and when the cloud is asked again."""
    place.launch()
    until(place.znodes, "cloud-a", lambda told: told.state == "running")
    begun = wall_time()
    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    request = place.znodes.submit(["small"])
    told = until(place.znodes, "cloud-a", lambda told: told.state == "unavailable")
    assert told.code == "provider.circuit-open"
    assert told.text is not None
    assert "503" in told.text
    assert begun <= told.since <= wall_time()
    assert told.next is not None
    assert told.next > told.since
    later = until(place.znodes, "cloud-a", lambda again: again.next is not None and again.next > (told.next or 0))
    assert later.since == told.since
    place.simulator.change(errors=[])
    place.fulfilled(request)
    told = until(place.znodes, "cloud-a", lambda told: told.state == "running")
    assert (told.code, told.text, told.next) == (None, None, None)
    assert told.since > later.since


# -- ``nodepool explain`` beside a launcher and a cloud (reference/commands 2, rule E-10)


def test_with_a_launcher(place: Place) -> None:
    """E-1, E-2: what waits for room, what waits behind it, and what failed. An image of the cloud without nodes."""
    place.pool["max-servers"] = 1
    place.section["cloud-images"].append({"name": "unused"})
    nodepool = CommandLine(place.launch().path)
    place.fulfilled(place.znodes.submit(["small"]))
    first, second = place.znodes.submit(["small"]), place.znodes.submit(["small"])
    never = place.znodes.submit(["small", "small"])
    place.failed(never)
    full = {"limit": 1, "used": 1, "needed": 1}

    def answer(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(nodepool("explain", name, "-o", "json").out)
        return found

    def told(name: str, code: str) -> bool:
        return bool(answer(name)["code"] == code)

    wait_for("it waits for room", lambda: told(first, "room.instances"))
    wait_for("it waits behind it", lambda: told(second, "wait.pool-paused"))
    wait_for("the cause is known", lambda: told(never, "quota.too-small"))
    assert [answer(name)["numbers"] for name in (first, second)] == [full, full]
    assert [answer(name)["ahead"] for name in (first, second)] == [0, 1]
    assert answer(never)["text"].endswith("2 instances needed, the limit of pool main is 1")
    assert answer("unused")["text"].endswith("nodepool-builder does not build it; no label boots from it")


def test_cloud_that_is_away(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The log of the look-up of an image and the explanation of the provider have the cloud's own words."""
    place.simulator.change(errors=[{"operation": f"{one}.*", "kind": "503"} for one in ("image", "compute")])
    nodepool = CommandLine(place.launch().path)
    place.znodes.submit(["small"])
    words = "503 The server is currently unavailable"
    wait_for("it is explained", lambda: words in nodepool("explain", "cloud-a").out)
    wait_for("it is logged", lambda: "its image could not be looked up: " in caplog.text)
    lines = [record.getMessage() for record in caplog.records if "could not be looked up" in record.getMessage()]
    assert all(words in line and "reports no version" not in line for line in lines)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"boots": [{"kind": "stuck"}]}, "it waits for the cloud to run what it created"),
        ({"latency_seconds": [5, 5]}, "it waits for the answer of the cloud to the call that creates it"),
    ],
    ids=["stuck", "slow"],
)
def test_cloud_that_does_not_go_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, object], words: str
) -> None:
    """What the commands say of a cloud that is slow or stuck, with the times of the rule made short."""
    for name in ("REPORTED_SECONDS", "LEAST_SECONDS", "UNKNOWN_SECONDS", "FACTOR"):
        monkeypatch.setattr(attention, name, 0.5)
    nodepool = CommandLine(place.launch().path)
    place.fulfilled(place.znodes.submit(["small"]))
    place.simulator.change(**knobs)
    request = place.znodes.submit(["small"])
    wait_for("status names the step", lambda: f"cloud-a/main: 1 of 1 launch takes long: {words}" in _line(nodepool))
    node = next(key for key in place.znodes.nodes() if (place.znodes.node(key) or {})["state"] == "building")
    assert f"node {node} waits for" in json.loads(nodepool("explain", request, "-o", "json").out)["text"]
    assert "launch-timeout ends the attempt in" in nodepool("explain", node).out
    assert nodepool("explain", "cloud-a").out.startswith("Provider cloud-a works slowly; 1 of 1 launch takes long")
    assert "launches slow" in nodepool("events").out
    place.simulator.change(latency_seconds=0, boots=[])


def _line(nodepool: CommandLine) -> str:
    return " ".join(nodepool("status").out.split())
