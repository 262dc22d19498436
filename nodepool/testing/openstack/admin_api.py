# SPDX-License-Identifier: Apache-2.0
"""``/admin``: settings, counters and mishaps for tests and benchmarks whose launchers run in other processes.

No token is needed: the port is on loopback. `nodepool.testing.openstack.client` is its client.
"""

from __future__ import annotations

from collections import Counter

from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.identity_api import IdentityApi
from nodepool.testing.openstack.messages import Answer, ApiError, Json, Request, json_answer

ADDABLE = ("server", "port", "floating_ip", "volume", "image")


class AdminApi:
    """Handlers by method and path. The caller holds the core's lock."""

    def __init__(self, cloud: Cloud, calls: Counter[str], identity: IdentityApi, bugs: list[str]) -> None:
        self.cloud = cloud
        self._calls = calls
        self._identity = identity
        self._bugs = bugs
        self._handlers = {
            ("GET", "/admin/state"): self._state,
            ("GET", "/admin/servers"): self._servers,
            ("GET", "/admin/images"): self._images,
            ("GET", "/admin/knobs"): self._knobs,
            ("POST", "/admin/knobs"): self._change,
            ("POST", "/admin/add"): self._add,
            ("POST", "/admin/vanish"): self._vanish,
            ("POST", "/admin/release-stuck"): self._release_stuck,
            ("POST", "/admin/expire-tokens"): self._expire_tokens,
            ("POST", "/admin/reset-counters"): self._reset_counters,
        }

    def handle(self, request: Request) -> Answer:
        """Serves it; errors are ``{"error": text}``."""
        handler = self._handlers.get((request.method, request.path))
        if handler is None:
            known = ", ".join(f"{method} {path}" for method, path in self._handlers)
            return json_answer({"error": f"there is no {request.method} {request.path}; there are {known}"}, 404)
        try:
            return json_answer(handler(request.json() if request.body else {}))
        except ApiError as error:
            return json_answer({"error": error.message}, error.status)
        except (TypeError, ValueError) as error:
            return json_answer({"error": str(error)}, 400)

    def state(self) -> Json:
        """Calls, events, contents and peaks."""
        observer = self.cloud.compute.observer
        return {
            "calls": dict(self._calls),
            "events": dict(self.cloud.core.events),
            "contents": self.cloud.contents(),
            "peak_servers": observer.peak_servers,
            "peak_by_provider": dict(observer.peak_by_provider),
            "peak_cores_by_provider": dict(observer.peak_cores_by_provider),
            "peak_ram_by_provider": dict(observer.peak_ram_by_provider),
            "peak_cores": observer.peak_cores,
            "peak_ram": observer.peak_ram,
            "double_nodes": list(observer.double_nodes),
            "bugs": list(self._bugs),
        }

    def _state(self, _body: Json) -> Json:
        return self.state()

    def _servers(self, _body: Json) -> Json:
        """Those that live, also where lists do not show them."""
        return {
            "servers": [
                {"id": server.id, "status": server.status, "task_state": server.task_state, "metadata": server.metadata}
                for server in self.cloud.compute.servers
            ]
        }

    def _images(self, _body: Json) -> Json:
        """All of them, as Glance shows them."""
        return {"images": list(self.cloud.images.images)}

    def _knobs(self, _body: Json) -> Json:
        return self.cloud.core.knobs.as_json()

    def _change(self, body: Json) -> Json:
        self.cloud.core.knobs.update(body)
        return self.cloud.core.knobs.as_json()

    def _add(self, body: Json) -> Json:
        arguments = dict(body)
        kind = arguments.pop("kind", None)
        if kind not in ADDABLE:
            raise ApiError(400, f"kind must be one of {', '.join(ADDABLE)}")
        if kind == "server":
            return {"id": self.cloud.add_server(**arguments).id}
        return {"id": getattr(self.cloud, f"add_{kind}")(**arguments)["id"]}

    def _vanish(self, body: Json) -> Json:
        self.cloud.compute.remove(self.cloud.compute.servers.get(str(body.get("id", ""))))
        return {}

    def _release_stuck(self, _body: Json) -> Json:
        self.cloud.compute.release_stuck()
        return {}

    def _expire_tokens(self, _body: Json) -> Json:
        self._identity.tokens.clear()
        return {}

    def _reset_counters(self, _body: Json) -> Json:
        before = self.state()
        self._calls.clear()
        self.cloud.core.events.clear()
        self.cloud.compute.observer.reset(self.cloud.compute.use)
        return before
