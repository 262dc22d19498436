# SPDX-License-Identifier: Apache-2.0
"""Service accounts and their tokens: what the service account and the token controller do."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from simulators.kubernetes.access import AccessControl
from simulators.kubernetes.kinds import ACCOUNTS, CONFIG_MAPS, NAMESPACES, SECRETS
from simulators.kubernetes.store import ADDED, DELETED, ObjectEvent, Store

Json = dict[str, Any]
TOKEN_SECRET, DOCKER_SECRET = "kubernetes.io/service-account-token", "kubernetes.io/dockercfg"
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


class Accounts:
    """Fills token secrets; new namespaces get an account, and a map with the authority's certificate.

    :ivar ca: the authority's certificate, PEM.
    """

    def __init__(self, store: Store, access: AccessControl, ca: str) -> None:
        self._store = store
        self._core = store.core
        self._access = access
        self.ca = ca
        store.table(NAMESPACES).listeners.append(self._namespace)
        store.table(ACCOUNTS).listeners.append(self._account)
        store.table(SECRETS).listeners.append(self._secret)

    def _namespace(self, event: ObjectEvent) -> None:
        if event.kind == ADDED:
            name = event.content["metadata"]["name"]
            self._core.after(self._core.knobs.account_seconds, "accounts", lambda: self._equip(name))

    def _equip(self, namespace: str) -> None:
        found = self._store.find(NAMESPACES, "", namespace)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        if self._store.find(ACCOUNTS, namespace, "default") is None:
            self._store.add(ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}})
        if self._store.find(CONFIG_MAPS, namespace, "kube-root-ca.crt") is None:
            metadata = {"name": "kube-root-ca.crt", "namespace": namespace}
            self._store.add(CONFIG_MAPS, {"metadata": metadata, "data": {"ca.crt": self.ca}})

    def _account(self, event: ObjectEvent) -> None:
        metadata = event.content["metadata"]
        if event.kind == ADDED:
            self._core.after(self._core.knobs.token_seconds, "tokens", lambda: self._equip_account(event.content))
        elif event.kind == DELETED:
            for secret in tuple(self._store.all(SECRETS, metadata["namespace"])):
                if (secret["metadata"].get("annotations") or {}).get(ACCOUNT_UID) == metadata["uid"]:
                    self._store.remove(SECRETS, secret)

    def _equip_account(self, account: Json) -> None:
        """Secrets that an account gets by itself: of tokens (before 1.24), of the image registry (OpenShift)."""
        namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
        found = self._store.find(ACCOUNTS, namespace, name)
        if found is None or found["metadata"]["uid"] != account["metadata"]["uid"]:
            return
        listed = []
        if self._core.knobs.token_secrets_by_itself:
            listed.append(self._add_secret(found, "token", TOKEN_SECRET))
        if self._core.knobs.openshift:
            listed.append(self._add_secret(found, "dockercfg", DOCKER_SECRET))
        if listed:
            names = [{"name": secret} for secret in listed]
            self._store.change(ACCOUNTS, found, lambda content: content.setdefault("secrets", []).extend(names))

    def _add_secret(self, account: Json, what: str, kind: str) -> str:
        namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
        secret = f"{name}-{what}-{secrets.token_hex(3)[:5]}"
        annotations = {ACCOUNT_NAME: name, ACCOUNT_UID: account["metadata"]["uid"]}
        metadata = {"name": secret, "namespace": namespace, "annotations": annotations}
        data = {".dockercfg": base64.b64encode(b"{}").decode()} if kind == DOCKER_SECRET else {}
        made = self._store.add(SECRETS, {"metadata": metadata, "type": kind, "data": data})
        if kind == TOKEN_SECRET:
            # The account names it when it is filled.
            self._fill(made)
        return secret

    def _secret(self, event: ObjectEvent) -> None:
        if event.content.get("type") != TOKEN_SECRET:
            return
        if event.kind == ADDED:
            self._core.after(self._core.knobs.token_seconds, "tokens", lambda: self._fill(event.content))
        elif event.kind == DELETED and "token" in (event.content.get("data") or {}):
            self._access.revoke(base64.b64decode(event.content["data"]["token"]).decode())

    def _fill(self, secret: Json) -> None:
        metadata = secret["metadata"]
        namespace = metadata["namespace"]
        found = self._store.find(SECRETS, namespace, metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"] or "token" in (found.get("data") or {}):
            return
        account = self._store.find(ACCOUNTS, namespace, (metadata.get("annotations") or {}).get(ACCOUNT_NAME, ""))
        if account is None:
            self._store.remove(SECRETS, found)
            return
        texts = {
            "token": self._access.add_account(namespace, account["metadata"]["name"]),
            "ca.crt": self.ca,
            "namespace": namespace,
        }

        def fill(content: Json) -> None:
            content["metadata"]["annotations"][ACCOUNT_UID] = account["metadata"]["uid"]
            data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
            content["data"] = (content.get("data") or {}) | data

        self._store.change(SECRETS, found, fill)
