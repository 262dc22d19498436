# SPDX-License-Identifier: Apache-2.0
"""Which worker hears of which change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from nodepool.launcher.supervisor import Router
from nodepool.model.component import PoolComponent
from tests.support.observed import node, request
from tests.support.tables import rows
from tests.unit.launcher.conftest import Records


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
        launcher: Any = SimpleNamespace(
            cache=SimpleNamespace(**self.caches),
            pools=SimpleNamespace(changed=self.note("registry")),
            pool_threads=SimpleNamespace(current=lambda: self.pools, get=self.get),
            **{name: SimpleNamespace(current=part) for name, part in parts.items()},
            tenant_limits=lambda: {"t": {}} if limited else {},
            counted=self.counts.append,
        )
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
