# SPDX-License-Identifier: Apache-2.0
"""The main loop by its single turn, how a launcher begins and ends, and the pools of all launchers (rules G, A-15)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.deletion import listen
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.shared import ABSENT_SECONDS, PoolRegistry
from nodepool.launcher.supervisor import Router
from nodepool.model.status import PoolComponent
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock
from tests.support.observed import node, request
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.tables import rows
from tests.unit.launcher.conftest import Records, Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider(name, cloud=cloud_name) for name in ("one", "two")])


def test_dead_threads(launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-1, G-3, G-7, G-16: others take their places, but not without a connection.

    The entry of a dead pool goes, or it would keep requests from failing.
    """
    nodepool = launcher.nodepool

    def threads() -> list[Any]:
        helpers = [nodepool.deletion.current, nodepool.cleanup.current, nodepool.min_ready.current]
        watch = [thread for thread in nodepool.parts.threads() if thread.name == "CallWatch"]
        return [launcher.worker("one"), *helpers, *watch]

    dead = threads()
    with monkeypatch.context() as patch:
        patch.setattr(type(nodepool.client), "connected", property(lambda client: False))
        patch.setattr(PoolWorker, "is_alive", lambda worker: False)
        nodepool.run_once()
        assert nodepool.pool_threads.get("one", "main") is dead[0]
    for thread in dead:
        thread.stop()
    nodepool.run_once()
    assert [pool["provider_name"] for pool in znodes.pools()] == ["two"]
    for old, new in zip(dead, threads(), strict=True):
        assert new is not old
        assert type(new) is type(old)
    assert len(znodes.pools()) == 2


# -- the pools of all launchers


class Registry(PoolRegistry):
    """With a cache that the test fills."""

    def __init__(self) -> None:
        self.records: list[PoolComponent] = []
        self.meanwhile: list[PoolComponent] | None = None
        self.clock, self.asked = ManualClock().rules(), 0
        super().__init__(cast(Any, self))

    def values(self) -> list[PoolComponent]:
        self.asked += 1
        found = list(self.records)
        if self.meanwhile is not None:
            self.records, self.meanwhile = self.meanwhile, None
            self.changed()
        return found

    def put(self, *pools: tuple[str, ...]) -> list[str]:
        """The ids of those that went, after a change.

        :param pools: id and labels of each.
        """
        self.records = []
        for pool_id, *labels in pools:
            self.records.append(PoolComponent("localhost", "test"))
            self.records[-1].id, self.records[-1].supported_labels = pool_id, labels or [f"label-{pool_id}"]
        self.changed()
        self.registered()
        return [info.id for info in self.absent()]


def test_pools_that_went() -> None:
    """A-15: they are waited for, but not for ever, and not when they are back. A-5: no view is older than a change."""
    registry = Registry()
    assert registry.put(("a",), ("b",), ("c",)) == []
    registry.gone_for_good("c")
    assert registry.put(("a",)) == ["b"]
    assert [info.labels for info in registry.absent()] == [{"label-b"}]
    registry.clock.pass_seconds(ABSENT_SECONDS - 1)
    assert [info.id for info in registry.absent()] == ["b"]
    assert registry.put(("a",), ("b",)) == []
    assert registry.put(("a",)) == ["b"]
    registry.clock.pass_seconds(ABSENT_SECONDS)
    assert registry.absent() == []
    asked = registry.asked
    registry.registered()
    assert registry.asked == asked, "nothing has changed"
    registry.meanwhile = []
    registry.changed()
    assert [len(registry.registered()) for _ in range(2)] == [1, 0]


def test_pool_under_a_new_id() -> None:
    """A-15: a launcher that was started again has new ids for the same pools: the old ones are not waited for.

    Of two launchers of a host the one that stays is not taken for the one that went, which has a label of its own.
    """
    registry = Registry()
    name = "host-PoolWorker.cloud-{}-{}".format
    old, new, other = (name(pool, end * 32) for pool, end in (("a", "0"), ("a", "1"), ("b", "2")))
    assert registry.put((old, "x")) == []
    assert registry.put((other, "x")) == [old]
    assert registry.put((other, "x"), (new, "x", "y")) == []
    registry = Registry()
    one, two, back = (name("main", end * 32) for end in "012")
    registry.put((one, "both", "one"), (two, "both", "two"))
    assert registry.put((one, "both", "one")) == [two]
    assert registry.put((one, "both", "one"), (back, "both", "two")) == []


# -- which worker hears of which change


class Pool(SimpleNamespace):
    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Site:
    """What `Router` is given, and what it tells."""

    def __init__(self, *, limited: bool) -> None:
        self.heard: list[str] = []
        self.counts: list[str] = []
        self.launching: set[str] = set()
        self.caches = {name: Records() for name in ("nodes", "requests", "pools", "images", "maintenance")}
        self.pools = [self.pool("one"), self.pool("two", labels="big"), self.pool("three")]
        deletion = SimpleNamespace(
            node_changed=lambda node_id: self.heard.append(f"deletion {node_id}"),
            request_gone=lambda key, nodes: self.heard.append(f"deletion {key}: {' '.join(sorted(nodes))}"),
        )
        cleanup = SimpleNamespace(
            sweep_soon=self.note("sweep"), launcher_went=self.note("went"), reset_soon=self.note("reset")
        )
        parts = {"deletion": deletion, "cleanup": cleanup, "maintenance_worker": Pool(wake=self.note("maintenance"))}
        parts["mixed"] = SimpleNamespace(changed=lambda _: None)
        launcher: Any = SimpleNamespace(
            cache=SimpleNamespace(**self.caches),
            pools=SimpleNamespace(changed=self.note("registry")),
            pool_threads=SimpleNamespace(current=lambda: self.pools, get=self.get),
            **{name: SimpleNamespace(current=part) for name, part in parts.items()},
            tenant_limits=lambda: {"t": {}} if limited else {},
            counted=self.counts.append,
        )
        listen(launcher.cache, launcher.deletion)
        Router(launcher)

    def note(self, what: str) -> Callable[[], None]:
        return lambda: self.heard.append(what)

    def get(self, *key: str | None) -> Pool | None:
        return next((pool for pool in self.pools if (pool.provider_name, pool.pool_name) == key), None)

    def pool(self, provider: str, name: str = "main", labels: str = "small") -> Pool:
        place = provider if name == "main" else f"{provider}/{name}"

        def hear(what: str) -> Callable[..., None]:
            return lambda key, *, wake=True: self.heard.append(f"{place} {what} {key}{'' if wake else ' later'}")

        return Pool(
            provider_name=provider,
            pool_name=name,
            launcher_id=place,
            labels=frozenset(labels.split()),
            handlers=[],
            node_changed=hear("node"),
            node_gone=hear("node"),
            request_changed=hear("request"),
            wake=self.note(f"{place} wake"),
            launches=lambda node: node.key in self.launching,
        )

    def change(self, kind: str, key: str, gone: bool = False, held: bool = False, **fields: Any) -> None:
        """Something changes, or goes.

        :param kind: ``serves`` and ``pool_of`` make further pools, with requests and without.
        """
        if kind in ("serves", "pool_of"):
            self.pools.append(self.pool(*key.split("/")))
            self.pools[-1].handlers = [object()] if kind == "serves" else []
            return
        cache = self.caches[{"record": "maintenance"}.get(kind, f"{kind}s")]
        cache.pop(key, None)
        for names, member in (
            (cache.locked, held),
            (cache.empty, fields.pop("empty", False)),
            (self.launching, fields.pop("launching", False)),
        ):
            (names.add if member else names.discard)(key)
        if key and not gone:
            made: Any = {"node": node, "request": request}.get(kind, lambda *_, **__: PoolComponent())
            labels = fields.pop("labels", "small").split()
            told = {"provider": "one", "version": None} if kind == "node" else {}
            cache[key] = made(1, *labels, **{**told, "id": key, **fields})
        cache.tell(*([] if kind == "record" else [key]))


@rows(__file__, "routing")
def test_what_is_heard(limited: bool, changes: list[dict[str, Any]], heard: list[str]) -> None:
    """A-4, A-5, A-6, A-8, C-4, C-9, C-10, G-3, MT-2, MT-7, Q-10, X-1. Those who count hear of everything."""
    site = Site(limited=limited)
    for change in changes:
        site.heard.clear()
        site.counts.clear()
        (kind, key), *fields = change.items()
        site.change(kind, key, **dict(fields))
    assert site.heard == heard
    assert site.counts == [key if kind == "request" else ""]
