# SPDX-License-Identifier: Apache-2.0
"""What a control plane needs for pods in namespaces of their own when nobody but a loop of API calls asks for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes_client import KubernetesClient, pod_body

#: As many as a launcher calls from at once.
THREADS: Final = 8
#: For all pods; the watches end by themselves then.
SECONDS: Final = 60
ROLE: Final = "bench-bare"
SECRET: Final = "token"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"

Object = dict[str, Any]


class BarePods:
    """Plain JSON over kept connections: the four objects that a node needs at least, in the order that waits least.

    :param kubeconfig: ``user`` is a context of it.
    """

    def __init__(self, kubeconfig: Path, user: str) -> None:
        self._client = KubernetesClient.of_context(kubeconfig, user)
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
        self._client.call("POST", f"{_RBAC}/clusterroles", body={"metadata": {"name": ROLE}, "rules": rules})

    def close(self) -> None:
        self._client.close()

    def make(self, count: int) -> float:
        """Makes so many at once, and deletes them; seconds until the last one runs and has its token. Blocks.

        :raises RuntimeError: they did not run in time.
        """
        names = [f"bare-{number}" for number in range(count)]
        accounts, running, tokens = (_Awaited(names) for _ in range(3))
        watches = [
            self._follow("serviceaccounts", accounts, _is_default),
            self._follow("pods", running, _runs),
            self._follow("secrets", tokens, _has_token),
        ]
        start = time.monotonic()
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self._begin, names))
            list(threads.map(lambda name: self._end(name, accounts), names))
        for name in names:
            if not (running.wait(name) and tokens.wait(name)):
                raise RuntimeError(f"{name} does not run after {SECONDS} s")
        seconds = time.monotonic() - start
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda name: self._client.call("DELETE", f"/api/v1/namespaces/{name}"), names))
        for watch in watches:
            watch.join()
        return seconds

    def _begin(self, name: str) -> None:
        self._client.call("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": name}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
        body = {"metadata": {"name": "binding"}, "subjects": [subject], "roleRef": role}
        self._client.call("POST", f"{_RBAC}/namespaces/{name}/rolebindings", body=body)

    def _end(self, name: str, accounts: _Awaited) -> None:
        """The API takes no pod before the namespace has its account."""
        accounts.wait(name)
        pod = pod_body("pod")
        pod["spec"]["automountServiceAccountToken"] = False
        self._client.call("POST", f"/api/v1/namespaces/{name}/pods", body=pod)
        metadata = {"name": SECRET, "annotations": {"kubernetes.io/service-account.name": "default"}}
        body = {"type": "kubernetes.io/service-account-token", "metadata": metadata}
        self._client.call("POST", f"/api/v1/namespaces/{name}/secrets", body=body)

    def _follow(self, plural: str, awaited: _Awaited, there: Callable[[Object], bool]) -> threading.Thread:
        def follow() -> None:
            for event in self._client.watch_lines(f"/api/v1/{plural}", SECONDS, timeoutSeconds=SECONDS):
                found = event["object"]
                if there(found):
                    awaited.came(str(found["metadata"]["namespace"]))
                if awaited.over:
                    return

        thread = threading.Thread(target=follow, name=f"watch-{plural}", daemon=True)
        thread.start()
        return thread


class _Awaited:
    """What is waited for in each namespace."""

    def __init__(self, names: list[str]) -> None:
        self._events = {name: threading.Event() for name in names}

    @property
    def over(self) -> bool:
        return all(event.is_set() for event in self._events.values())

    def came(self, name: str) -> None:
        if name in self._events:
            self._events[name].set()

    def wait(self, name: str) -> bool:
        return self._events[name].wait(SECONDS)


def _is_default(account: Object) -> bool:
    return bool(account["metadata"]["name"] == "default")


def _runs(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _has_token(secret: Object) -> bool:
    return secret["metadata"]["name"] == SECRET and bool((secret.get("data") or {}).get("token"))
