# SPDX-License-Identifier: Apache-2.0
"""The official client of Kubernetes, and short cuts for what tests do with it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from tests.support.wait import wait_for

ACCOUNT = "zuul-worker"
#: How long a server may say nothing.
PATIENCE_SECONDS = 30.0
# Parts of the client that are written by hand have no type hints.
_CONFIG: Any = config
_WATCH: Any = watch.watch


class Refusal:
    """What the API server said. :param status: of HTTP; the rest is of its ``Status``."""

    def __init__(self, error: ApiException) -> None:
        self.status: int = error.status
        content = json.loads(error.body or "{}")
        self.message: str = content.get("message", "")
        self.reason: str = content.get("reason", "")

    def __repr__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


def refusal(call: Callable[[], object]) -> Refusal | None:
    """What the call is refused with; None = it is not."""
    try:
        call()
    except ApiException as error:
        return Refusal(error)
    return None


class KubernetesClient:
    """One client of a cluster. All calls block.

    :param api: the client's connection.
    """

    def __init__(self, api: Any) -> None:
        self.api = api
        self.core: Any = client.CoreV1Api(api)
        self.rbac: Any = client.RbacAuthorizationV1Api(api)
        self.reviews: Any = client.AuthorizationV1Api(api)

    @classmethod
    def of_context(cls, kubeconfig: Path, context: str = "admin") -> KubernetesClient:
        """As a user of the kubeconfig."""
        return cls(_CONFIG.new_client_from_config(str(kubeconfig), context=context))

    def with_token(self, token: str) -> KubernetesClient:
        """The same cluster as somebody else, who has nothing but a token."""
        own = self.api.configuration
        configuration = client.Configuration()
        configuration.host, configuration.ssl_ca_cert = own.host, own.ssl_ca_cert
        configuration.api_key = {"authorization": f"Bearer {token}"}
        return KubernetesClient(client.ApiClient(configuration))

    def close(self) -> None:
        """Closes the connections."""
        self.api.rest_client.pool_manager.clear()
        self.api.close()

    # -- namespaces --

    def add_namespace(self, name: str, **labels: str) -> Any:
        """A namespace in which pods can be made."""
        made = self.core.create_namespace({"metadata": {"name": name, "labels": labels}})
        # Before 1.24 a pod is refused until its account has a token.
        wait_for(f"{name} has its account", lambda: self._has_account(name))
        return made

    def _has_account(self, namespace: str) -> bool:
        pod = pod_body("probe")
        found = refusal(lambda: self.core.create_namespaced_pod(namespace, pod, dry_run="All"))
        assert found is None, found
        return True

    def namespace_gone(self, name: str) -> bool:
        """Is there none of this name?"""
        found = refusal(lambda: self.core.read_namespace(name))
        return found is not None and found.status == 404

    # -- pods --

    def add_pod(self, namespace: str, name: str = "pod", **wishes: Any) -> Any:
        """A pod; ``wishes`` as `pod_body` takes them."""
        return self.core.create_namespaced_pod(namespace, pod_body(name, **wishes))

    def pod(self, namespace: str, name: str = "pod") -> Any:
        """The pod as it is."""
        return self.core.read_namespaced_pod(name, namespace)

    def running(self, namespace: str, name: str = "pod") -> Any:
        """Waits until the pod runs; returns it."""
        return wait_for(f"{namespace}/{name} runs", lambda: self._phase(namespace, name, "Running"))

    def _phase(self, namespace: str, name: str, phase: str) -> Any:
        pod = self.pod(namespace, name)
        return pod if pod.status.phase == phase else None

    # -- tokens --

    def add_account(self, namespace: str) -> str:
        """A service account with a token secret; returns the token when it is there."""
        self.core.create_namespaced_service_account(namespace, {"metadata": {"name": ACCOUNT}})
        annotations = {"kubernetes.io/service-account.name": ACCOUNT}
        secret = {"metadata": {"name": ACCOUNT, "annotations": annotations}}
        self.core.create_namespaced_secret(namespace, {"type": "kubernetes.io/service-account-token", **secret})
        data = wait_for("the token secret is filled", lambda: self._token_data(namespace))
        assert data is not None
        return base64.b64decode(data["token"]).decode()

    def _token_data(self, namespace: str) -> dict[str, str] | None:
        data: dict[str, str] | None = self.core.read_namespaced_secret(ACCOUNT, namespace).data
        return data if data and data.get("token") else None

    def allow(self, namespace: str, *rules: dict[str, Any]) -> None:
        """Gives `ACCOUNT` these rights in the namespace."""
        self.rbac.create_namespaced_role(namespace, {"metadata": {"name": "role"}, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "role"}
        binding = {"metadata": {"name": "binding"}, "roleRef": reference, "subjects": [subject]}
        self.rbac.create_namespaced_role_binding(namespace, binding)

    # -- watches --

    def watch_lines(
        self, path: str, patience_seconds: float = PATIENCE_SECONDS, **query: Any
    ) -> Iterator[dict[str, Any]]:
        """Events of a watch, as they come over the wire, until the server ends it.

        :param patience_seconds: how long nothing may come.
        :raises urllib3.exceptions.HTTPError: the connection broke.
        """
        fields = {"watch": "1", "timeoutSeconds": "20", **{key: str(value) for key, value in query.items()}}
        answer = self._send("GET", path, fields, patience_seconds=patience_seconds)
        try:
            for line in _WATCH.iter_resp_lines(answer):
                if line:
                    yield json.loads(line)
        finally:
            answer.close()

    def call(self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None) -> Any:
        """One request, past the client's models. Returns its JSON. :raises ApiException: it was refused."""
        answer = self._send(method, path, query, body)
        text = answer.read().decode()
        answer.release_conn()
        if not 200 <= answer.status < 300:
            error = ApiException(status=answer.status)
            # Old releases of the client do not take it as an argument.
            error.body = text
            raise error
        return json.loads(text)

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Any:
        configuration = self.api.configuration
        headers = {"Content-Type": "application/json"}
        headers |= {setting["key"]: setting["value"] for setting in configuration.auth_settings().values()}
        url = f"{configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body)
        return self.api.rest_client.pool_manager.request(
            method, url, body=data, headers=headers, preload_content=False, timeout=patience_seconds, retries=False
        )


def pod_body(name: str, **wishes: Any) -> dict[str, Any]:
    """A pod of one container.

    :param wishes: ``outcome`` and other annotations of `kubernetes-rig`; ``requests``, ``limits``, ``selector``,
        ``grace``, ``finalizers``, ``labels``.
    """
    steering = ("outcome", "start_seconds", "stop_seconds")
    annotations = {f"kubernetes-rig/{key.replace('_', '-')}": str(wishes[key]) for key in steering if key in wishes}
    container = {"name": "main", "image": "docker.io/debian:12", "command": ["/bin/sleep", "infinity"]}
    resources = {key: wishes[key] for key in ("requests", "limits") if key in wishes}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": wishes.get("grace", 30),
        "containers": [{**container, "resources": resources}],
        **({"nodeSelector": wishes["selector"]} if "selector" in wishes else {}),
    }
    metadata = {"name": name, "annotations": annotations, "labels": wishes.get("labels", {})}
    if "finalizers" in wishes:
        metadata["finalizers"] = wishes["finalizers"]
    return {"metadata": metadata, "spec": spec}
