# SPDX-License-Identifier: Apache-2.0
"""OpenShift's projects and role bindings: views of namespaces and of Kubernetes' role bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulators.base.messages import Request
from simulators.kubernetes.access import AccessControl, AccessQuestion, AskingUser
from simulators.kubernetes.errors import Refused, already_exists, forbidden, not_found
from simulators.kubernetes.kinds import (
    BINDINGS,
    NAMESPACES,
    OPENSHIFT_BINDINGS,
    PROJECT,
    PROJECT_REQUESTS,
    RBAC,
    ObjectPath,
)
from simulators.kubernetes.lifecycle import Lifecycle
from simulators.kubernetes.resources import selection
from simulators.kubernetes.store import Store
from simulators.kubernetes.validation import check_object

Json = dict[str, Any]
REQUESTER = "openshift.io/requester"


def as_project(namespace: Json) -> Json:
    """How a namespace looks as a project."""
    return {**namespace, "kind": PROJECT.name, "apiVersion": PROJECT.api_version}


class OpenShift:
    """Serves them. The caller holds the core's lock and has checked that the user may do it."""

    def __init__(self, store: Store, access: AccessControl, lifecycle: Lifecycle) -> None:
        self._store = store
        self._core = store.core
        self._access = access
        self._lifecycle = lifecycle

    def visible(self, user: AskingUser) -> Callable[[Json], bool]:
        """Which namespaces the user sees as projects."""

        return lambda namespace: self.may_see(user, namespace["metadata"]["name"])

    def may_see(self, user: AskingUser, name: str) -> bool:
        """Does the user see the namespace of this name as a project?"""
        return self._access.allows(user, AccessQuestion("get", "", NAMESPACES.plural, name, name))

    def list_projects(self, target: ObjectPath, user: AskingUser, request: Request) -> Json:
        """Those that the user sees."""
        matches, sees = selection(target, request), self.visible(user)
        items = [as_project(one) for one in self._store.all(NAMESPACES) if matches(one) and sees(one)]
        metadata = {"resourceVersion": str(self._store.version)}
        # openshift-apiserver, pkg/project/util, ConvertNamespaceList: a slice of Go that nothing was added to is null.
        return {"kind": "ProjectList", "apiVersion": PROJECT.api_version, "metadata": metadata, "items": items or None}

    def get_project(self, target: ObjectPath) -> Json:
        """One of them. :raises Refused: 404."""
        return as_project(self._find(target))

    def _find(self, target: ObjectPath) -> Json:
        found = self._store.find(NAMESPACES, "", target.name)
        if found is None:
            raise not_found(PROJECT, target.name)
        return found

    def delete_project(self, target: ObjectPath, options: Json) -> Json:
        """Deletes the namespace. :raises Refused: 404."""
        self._lifecycle.delete(NAMESPACES, self._find(target), options)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def request_project(self, user: AskingUser, content: Json) -> Json:
        """A new project for this user. As in the real one, labels of the request are not those of the project.

        :raises Refused: 403, 409 or 422.
        """
        metadata = content.get("metadata") or {}
        name = str(metadata.get("name", ""))
        if name.startswith(("kube-", "openshift-")) or name in ("default", "openshift"):
            raise forbidden(
                PROJECT_REQUESTS, name, f'cannot request a project starting with "{name.partition("-")[0]}-"'
            )
        mine = [one for one in self._store.all(NAMESPACES) if self._requester(one) == user.name]
        limit = self._core.knobs.project_limit
        if 0 <= limit <= len(mine):
            raise forbidden(PROJECT_REQUESTS, name, f"user {user.name} cannot create more than {limit} project(s).")
        if self._store.find(NAMESPACES, "", name) is not None:
            raise already_exists(PROJECT, name)
        texts = {"description": content.get("description", ""), "display-name": content.get("displayName", "")}
        annotations = {f"openshift.io/{key}": text for key, text in texts.items()} | {REQUESTER: user.name}
        namespace = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        check_object(NAMESPACES, namespace)
        made = self._store.add(NAMESPACES, namespace)
        self._core.after(self._core.knobs.project_access_seconds, "projects", lambda: self.give_access(name, user.name))
        return as_project(made)

    def _requester(self, namespace: Json) -> str | None:
        found: str | None = (namespace["metadata"].get("annotations") or {}).get(REQUESTER)
        return found

    def give_access(self, namespace: str, user: str) -> None:
        """The user may do all in the project, if it is still there."""
        if self._store.find(NAMESPACES, "", namespace) is None:
            return
        subject = {"kind": "User", "apiGroup": RBAC, "name": user}
        reference = {"kind": "ClusterRole", "apiGroup": RBAC, "name": "admin"}
        metadata = {"name": "admin", "namespace": namespace}
        if self._store.find(BINDINGS, namespace, "admin") is None:
            self._store.add(BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})

    def bind(self, target: ObjectPath, user: AskingUser, content: Json) -> Json:
        """A role binding in OpenShift's form. :raises Refused: 403, 404, 409 or 422."""
        metadata = {"name": content["metadata"]["name"], "namespace": target.namespace}
        reference = content.get("roleRef") or {}
        if not reference.get("name"):
            raise Refused(422, f'RoleBinding "{metadata["name"]}" is invalid: roleRef.name: Required value')
        kind = "Role" if reference.get("namespace") else "ClusterRole"
        binding = {
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": reference["name"]},
            "subjects": _subjects(content, target.namespace),
        }
        self._lifecycle.check_namespace(BINDINGS, binding)
        check_object(BINDINGS, binding)
        self._access.check_grant(user, BINDINGS, binding)
        return _as_openshift_binding(self._store.add(BINDINGS, binding))

    def list_bindings(self, target: ObjectPath, request: Request) -> Json:
        """Those of a namespace, or of all."""
        matches = selection(target, request)
        items = [_as_openshift_binding(one) for one in self._store.all(BINDINGS, target.namespace) if matches(one)]
        metadata = {"resourceVersion": str(self._store.version)}
        api_version = OPENSHIFT_BINDINGS.api_version
        return {"kind": "RoleBindingList", "apiVersion": api_version, "metadata": metadata, "items": items}

    def get_binding(self, target: ObjectPath) -> Json:
        """One of them. :raises Refused: 404."""
        return _as_openshift_binding(self._store.get(BINDINGS, target.namespace, target.name))

    def delete_binding(self, target: ObjectPath) -> Json:
        """One of them. :raises Refused: 404."""
        self._store.remove(BINDINGS, self._store.get(BINDINGS, target.namespace, target.name))
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _subjects(content: Json, namespace: str) -> list[Json]:
    """``userNames`` and ``groupNames``, where they are given, take the place of ``subjects``."""
    users, groups = content.get("userNames"), content.get("groupNames")
    if users is None and groups is None:
        return [
            {"namespace": namespace, **subject} if subject.get("kind") == "ServiceAccount" else subject
            for subject in content.get("subjects") or ()
        ]
    found: list[Json] = []
    for user in users or ():
        if user.startswith("system:serviceaccount:"):
            place, name = user.split(":")[2:4]
            found.append({"kind": "ServiceAccount", "name": name, "namespace": place})
        else:
            found.append({"kind": "User", "apiGroup": RBAC, "name": user})
    return [*found, *({"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups or ())]


def _as_openshift_binding(binding: Json) -> Json:
    subjects = binding.get("subjects") or []
    users = [
        f"system:serviceaccount:{one['namespace']}:{one['name']}" if one["kind"] == "ServiceAccount" else one["name"]
        for one in subjects
        if one["kind"] in ("ServiceAccount", "User")
    ]
    return {
        **binding,
        "apiVersion": OPENSHIFT_BINDINGS.api_version,
        "roleRef": {"name": binding["roleRef"]["name"]},
        "userNames": users,
        "groupNames": [one["name"] for one in subjects if one["kind"] == "Group"] or None,
    }
