# SPDX-License-Identifier: Apache-2.0
"""The operations that all stored kinds have: list, get, create, change, delete."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable
from typing import Any

from simulators.base.messages import Request
from simulators.kubernetes.access import AccessControl, AskingUser
from simulators.kubernetes.accounts import Accounts
from simulators.kubernetes.errors import Refused, conflict, expired, invalid, not_found
from simulators.kubernetes.kinds import (
    ACCOUNTS,
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    ROLES,
    SECRETS,
    ObjectKind,
    ObjectPath,
)
from simulators.kubernetes.lifecycle import Lifecycle
from simulators.kubernetes.patches import apply_patch
from simulators.kubernetes.pods import PodController, complete_pod
from simulators.kubernetes.quotas import Quotas
from simulators.kubernetes.selectors import field_selector, label_selector
from simulators.kubernetes.store import Store
from simulators.kubernetes.validation import check_object, check_pod

Json = dict[str, Any]
#: Of an object's metadata, what its client does not say.
_OWN = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)
#: Kinds whose deletion answers with the object as it was.
_GIVEN_BACK = (PODS, QUOTAS, ACCOUNTS)
_GRANTS = (ROLES, BINDINGS, CLUSTER_ROLES, CLUSTER_BINDINGS)


def selection(target: ObjectPath, request: Request) -> Callable[[Json], bool]:
    """Which objects a list, a watch or a deletion of many means.

    :raises Refused: 400, a selector that is none.
    """
    tests = [
        test
        for test in (
            label_selector(request.argument("labelSelector")),
            field_selector(target.kind, request.argument("fieldSelector")),
        )
        if test is not None
    ]
    if target.namespace:
        tests.append(lambda content: content["metadata"].get("namespace") == target.namespace)
    if target.name:
        tests.append(lambda content: content["metadata"]["name"] == target.name)
    return lambda content: all(test(content) for test in tests)


class Resources:
    """Serves them out of the store. The caller holds the core's lock and has checked that the user may do it."""

    def __init__(
        self,
        store: Store,
        access: AccessControl,
        accounts: Accounts,
        quotas: Quotas,
        pods: PodController,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._access = access
        self._accounts = accounts
        self._quotas = quotas
        self._pods = pods
        self._lifecycle = lifecycle

    def list(self, target: ObjectPath, request: Request) -> Json:
        """A list, or a page of it.

        :raises Refused: 400, an argument that is none; 410, the page is of a list that nobody knows any more.
        """
        matches = selection(target, request)
        found = [content for content in self._store.all(target.kind, target.namespace) if matches(content)]
        limit, start = request.argument("limit"), request.argument("continue")
        version = self._store.version
        metadata: Json = {}
        if start:
            version, last = self._read_continue(target.kind, start)
            found = [content for content in found if _order(content) > last]
        most, turn = int(limit) if limit.isdigit() and int(limit) > 0 else len(found), self._store.core.turn
        if found and not start and limit and turn("page", False, False, False, True):
            # `ListOptions.limit`: "may return fewer than the requested amount of items (up to zero items)".
            most = 0
        if most < len(found):
            # It is left out where a selector is.
            metadata |= turn("remaining", {"remainingItemCount": len(found) - most}, {})
            begin = list(_order(found[most - 1])) if most else ["", ""]
            found = found[:most]
            token = {"v": "meta.k8s.io/v1", "rv": version, "start": begin}
            metadata["continue"] = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")
        kind = target.kind
        return {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(version), **metadata},
            # The real lists leave out what the list says already.
            "items": [
                {key: value for key, value in self.shown(content).items() if key not in ("kind", "apiVersion")}
                for content in found
            ],
        }

    def shown(self, content: Json) -> Json:
        """As an answer has it: without what is empty in its metadata, or with it; with conditions of later releases."""
        core = self._store.core
        shown = {**content, "metadata": core.sparse("metadata", content["metadata"])}
        conditions = (content.get("status") or {}).get("conditions")
        if conditions and core.turn("conditions", False, True):
            more = {"type": "WhatComesNext", "status": "False", "lastProbeTime": None, "lastTransitionTime": None}
            shown["status"] = {**content["status"], "conditions": [*conditions, more]}
        return shown

    def _read_continue(self, kind: ObjectKind, text: str) -> tuple[int, tuple[str, str]]:
        try:
            token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            version, (namespace, name) = int(token["rv"]), token["start"]
        except (binascii.Error, ValueError, TypeError, KeyError):
            raise Refused(400, "invalid continue token: continue key is not valid") from None
        if version < self._store.table(kind).oldest:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results."
            )
        return version, (namespace, name)

    def get(self, target: ObjectPath) -> Json:
        """One object. :raises Refused: 404."""
        return self._store.get(target.kind, target.namespace if target.kind.namespaced else "", target.name)

    def create(self, target: ObjectPath, user: AskingUser, content: Json, dry_run: bool = False) -> Json:
        """A new object.

        :param dry_run: all is checked, and nothing is stored.
        :raises Refused: 400, 403, 404, 409 or 422.
        """
        kind = target.kind
        content = self._prepared(target, content)
        name = content["metadata"]["name"]
        if kind.namespaced:
            self._lifecycle.check_namespace(kind, content)
        check_object(kind, content)
        if kind in _GRANTS:
            self._access.check_grant(user, kind, content)
        if kind is PODS:
            complete_pod(content)
            self._pods.admit(content)
        elif kind is NAMESPACES:
            content |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        elif kind is NODES:
            status = content.setdefault("status", {})
            status.setdefault("allocatable", status.get("capacity") or {})
        elif kind is SECRETS:
            content.setdefault("type", "Opaque")
        elif kind is QUOTAS:
            content["status"] = {}
        key = (target.namespace if kind.namespaced else "", name)
        if key not in self._store.table(kind).objects and kind.namespaced:
            self._quotas.admit(kind, content)
            if kind is PODS:
                check_pod(content)
        return content if dry_run else self._store.add(kind, content)

    def _prepared(self, target: ObjectPath, content: Json) -> Json:
        kind = target.kind
        for field, wanted in (("kind", kind.name), ("apiVersion", kind.api_version)):
            if content.get(field, wanted) != wanted:
                text = f"the object provided is unrecognized (must be of type {kind.name}): {field} {content[field]!r}"
                raise Refused(400, text)
        metadata = dict(content.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise Refused(400, "resourceVersion should not be set on objects to be created", "InternalError")
        for field in _OWN:
            metadata.pop(field, None)
        if kind.namespaced and metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise Refused(400, "the namespace of the provided object does not match the namespace sent on the request")
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise invalid(
                    kind, "", "metadata.name", "Required value: name or generateName is required", missing=True
                )
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]
        return content | {"metadata": metadata}

    def replace(self, target: ObjectPath, user: AskingUser, content: Json) -> Json:
        """PUT: the whole object. :raises Refused: 404, 409 or 422."""
        before = self.get(target)
        version = (content.get("metadata") or {}).get("resourceVersion")
        if version and version != before["metadata"]["resourceVersion"]:
            text = "the object has been modified; please apply your changes to the latest version and try again"
            raise conflict(target.kind, target.name, text)
        return self._store_changed(target, user, before, content)

    def patch(self, target: ObjectPath, user: AskingUser, content_type: str, patch: Any) -> Json:
        """PATCH. :raises Refused: 404, 409, 415 or 422."""
        before = self.get(target)
        return self._store_changed(target, user, before, apply_patch(before, content_type, patch))

    def _store_changed(self, target: ObjectPath, user: AskingUser, before: Json, content: Json) -> Json:
        kind = target.kind
        metadata = before["metadata"]
        named = content.get("metadata") or {}
        if named.get("uid", metadata["uid"]) != metadata["uid"]:
            text = f"Precondition failed: UID in precondition: {named['uid']}, UID in object meta: {metadata['uid']}"
            raise conflict(kind, target.name, text)
        own = {field: metadata[field] for field in (*_OWN, "name", "namespace") if field in metadata}
        new = {**content, "kind": kind.name, "apiVersion": kind.api_version, "metadata": {**named, **own}}
        for field in _OWN:
            if field not in metadata:
                new["metadata"].pop(field, None)
        if target.subresource == "status":
            new = {**before, "status": content.get("status", {})}
        elif target.subresource == "finalize":
            new = {**before, "spec": content.get("spec", {})}
        elif "status" in before:
            new["status"] = before["status"]
        check_object(kind, new)
        if kind in _GRANTS:
            self._access.check_grant(user, kind, new)

        def change(stored: Json) -> None:
            stored.clear()
            stored.update(new)

        stored = self._store.change(kind, before, change)
        self._lifecycle.changed(kind, stored)
        return stored

    def delete(self, target: ObjectPath, options: Json) -> Json:
        """One object.

        :returns: the object if it is still there or the kind is one that is given back, else a success.
        :raises Refused: 404 or 409.
        """
        before = self.get(target)
        left = self._lifecycle.delete(target.kind, before, options)
        if left is not None:
            return left
        if target.kind in _GIVEN_BACK:
            return before
        details = {"name": target.name, "kind": target.kind.plural, "uid": before["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def delete_many(self, target: ObjectPath, request: Request, options: Json) -> Json:
        """All that are selected. :returns: the list of them."""
        found = self.list(target, request)
        matches = selection(target, request)
        for content in tuple(self._store.all(target.kind, target.namespace)):
            if matches(content):
                self._lifecycle.delete(target.kind, content, options)
        return found

    def request_token(self, target: ObjectPath, body: Json) -> Json:
        """A token of a service account that no secret holds. :raises Refused: 404."""
        account = self.get(target)
        if account is None:
            raise not_found(target.kind, target.name)
        token = self._access.add_account(target.namespace, target.name)
        kind = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"name": target.name}}
        return kind | {"spec": body.get("spec") or {}, "status": {"token": token}}


def _order(content: Json) -> tuple[str, str]:
    metadata = content["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
