# SPDX-License-Identifier: Apache-2.0
"""Takes each request through faults, tokens and roles to what serves it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

from simulators.base.application import SimulatedApplication
from simulators.base.faults import fault_answer
from simulators.base.messages import Answer, ApiError, Request
from simulators.kubernetes.access import AccessQuestion, AskingUser
from simulators.kubernetes.admin_api import KubernetesAdminApi
from simulators.kubernetes.cluster import Cluster
from simulators.kubernetes.discovery import discover
from simulators.kubernetes.errors import MESSAGES, Refused, error_answer, no_resource
from simulators.kubernetes.kinds import (
    ACCESS_REVIEWS,
    NAMESPACES,
    OPENSHIFT,
    OPENSHIFT_BINDINGS,
    PODS,
    PROJECT,
    PROJECT_REQUESTS,
    ObjectPath,
    find_object_path,
)
from simulators.kubernetes.openshift import as_project
from simulators.kubernetes.resources import selection
from simulators.kubernetes.watches import WatchOrder, WatchStream
from simulators.kubernetes.wire import text_of

Json = dict[str, Any]
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def _parts(request: Request) -> list[str]:
    return [part for part in request.path.split("/") if part]


def verb_of(request: Request, target: ObjectPath) -> str:
    """What is asked for, as roles name it."""
    if request.method == "GET":
        if request.argument("watch") in ("1", "true", "True"):
            return "watch"
        return "get" if target.name else "list"
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(request.method, request.method.lower())


class ClusterApplication(SimulatedApplication):
    """The API of the cluster, and ``/admin``."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.core)
        self.cluster = cluster
        self.admin = KubernetesAdminApi(cluster, self)

    def operation(self, request: Request) -> str | None:
        """``<plural>.<verb>``, for example ``pods.watch``, ``pods/log.get``, ``discovery.get``; None = ``/admin``."""
        parts = _parts(request)
        if parts and parts[0] == "admin":
            return None
        openshift = self.cluster.core.knobs.openshift
        if discover(parts, openshift) is not None:
            return "discovery.get"
        target = find_object_path(parts, openshift)
        if target is None:
            return "unknown.unknown"
        resource = f"{target.kind.plural}/{target.subresource}" if target.subresource else target.kind.plural
        return f"{resource}.{verb_of(request, target)}"

    def serve(self, request: Request) -> Answer:
        operation = self.operation(request)
        if operation is None:
            return self.admin.handle(request)
        rule = self.fault(operation)
        if rule is not None and not rule.after:
            return fault_answer(rule, error_answer, MESSAGES)
        try:
            answer = self._serve(request)
        except ApiError as error:
            answer = error_answer(error)
        return answer if rule is None else fault_answer(rule, error_answer, MESSAGES)

    def _serve(self, request: Request) -> Answer:
        parts = _parts(request)
        openshift = self.cluster.core.knobs.openshift
        found = discover(parts, openshift)
        if found is not None:
            return _json(found)
        if parts and parts[0] in ("healthz", "livez", "readyz"):
            return Answer(200, b"ok", content_type="text/plain")
        user = self.cluster.access.user(request.headers.get("authorization", ""))
        target = find_object_path(parts, openshift)
        if target is None:
            raise no_resource()
        verb = verb_of(request, target)
        if not target.subresource and verb not in target.kind.verbs:
            raise Refused(405, "the server does not allow this method on the requested resource", details={})
        self._check(user, verb, target)
        if verb == "watch":
            return self._watch(request, target, user)
        if target.kind in OPENSHIFT:
            return self._serve_openshift(request, target, user, verb)
        if target.kind is ACCESS_REVIEWS:
            return _json(self._review(user, _body(request)), 201)
        if target.subresource in ("log", "exec", "portforward", "token"):
            return self._serve_subresource(request, target)
        return self._serve_stored(request, target, user, verb)

    def _check(self, user: AskingUser, verb: str, target: ObjectPath) -> None:
        if target.kind in (NAMESPACES, PROJECT) and target.name:
            # Of these a role in the namespace itself decides.
            target = ObjectPath(target.kind, target.name, target.name, target.subresource)
            if target.kind is PROJECT and verb == "get" and self.cluster.openshift.may_see(user, target.name):
                return
        self.cluster.access.check(user, verb, target)

    def _serve_stored(self, request: Request, target: ObjectPath, user: AskingUser, verb: str) -> Answer:
        resources = self.cluster.resources
        if verb == "list":
            return _json(resources.list(target, request))
        if verb == "get":
            return _json(resources.shown(resources.get(target)))
        if verb == "create":
            dry_run = request.argument("dryRun") == "All"
            return _json(resources.create(target, user, _body(request), dry_run), 201)
        if request.argument("dryRun"):
            raise Refused(400, "the simulator knows dryRun only for what is made")
        if verb == "update":
            return _json(resources.replace(target, user, _body(request)))
        if verb == "patch":
            return _json(resources.patch(target, user, request.headers.get("content-type", ""), _any_body(request)))
        if verb == "deletecollection":
            return _json(resources.delete_many(target, request, _options(request)))
        # 202 is how a server may say that the object is not gone yet.
        return _json(resources.delete(target, _options(request)), self.cluster.core.turn("deletion", 200, 202))

    def _serve_openshift(self, request: Request, target: ObjectPath, user: AskingUser, verb: str) -> Answer:
        openshift, kind = self.cluster.openshift, target.kind
        if kind is PROJECT_REQUESTS:
            if verb == "list":
                return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
            return _json(openshift.request_project(user, _body(request)), 201)
        if kind is OPENSHIFT_BINDINGS:
            if verb == "create":
                return _json(openshift.bind(target, user, _body(request)), 201)
            if verb == "list":
                return _json(openshift.list_bindings(target, request))
            return _json(openshift.get_binding(target) if verb == "get" else openshift.delete_binding(target))
        if verb == "list":
            return _json(openshift.list_projects(target, user, request))
        if verb == "get":
            return _json(openshift.get_project(target))
        return _json(openshift.delete_project(target, _options(request)))

    def _serve_subresource(self, request: Request, target: ObjectPath) -> Answer:
        if target.subresource == "token":
            return _json(self.cluster.resources.request_token(target, _body(request)), 201)
        pod = self.cluster.store.get(PODS, target.namespace, target.name)
        if target.subresource == "log":
            return Answer(200, f"log of {pod['metadata']['name']}\n".encode(), content_type="text/plain")
        raise Refused(400, "Upgrade request required")

    def _review(self, user: AskingUser, body: Json) -> Json:
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        resource = asked.get("resource", "")
        if asked.get("subresource"):
            resource += f"/{asked['subresource']}"
        question = AccessQuestion(
            asked.get("verb", ""), asked.get("group", ""), resource, asked.get("namespace", ""), asked.get("name", "")
        )
        kind = {"kind": ACCESS_REVIEWS.name, "apiVersion": ACCESS_REVIEWS.api_version, "metadata": {}}
        allowed = self.cluster.access.allows(user, question)
        return kind | {"spec": body.get("spec") or {}, "status": {"allowed": allowed}}

    def _watch(self, request: Request, target: ObjectPath, user: AskingUser) -> Answer:
        cluster = self.cluster
        core, store = cluster.core, cluster.store
        version = request.argument("resourceVersion")
        if version and not version.isdigit():
            raise Refused(400, f'invalid resource version "{version}"')
        seconds = request.argument("timeoutSeconds")
        stored = NAMESPACES if target.kind is PROJECT else target.kind
        matches = selection(target, request)
        if target.kind is PROJECT:
            selected, sees = matches, cluster.openshift.visible(user)
            matches = lambda content: selected(content) and sees(content)  # noqa: E731
        order = WatchOrder(
            target.kind,
            store.table(stored),
            matches,
            as_project if target.kind is PROJECT else lambda content: content,
            None if version in ("", "0") else int(version),
            request.argument("allowWatchBookmarks") in ("1", "true", "True"),
            float(seconds) if seconds.isdigit() and int(seconds) else core.draw(core.knobs.watch_seconds, "watches"),
        )
        rules = (rule for rule in core.knobs.watches if fnmatchcase(target.kind.plural, rule.resource))
        rule = next((rule for rule in rules if core.applies(rule, "watch faults")), None)
        stream = WatchStream(store, order, rule, lambda: cluster.watches.remove(stream))
        cluster.watches.append(stream)
        return Answer(200, stream=stream)


def _json(content: Json, status: int = 200) -> Answer:
    return Answer(status, text_of(content).encode())


def _any_body(request: Request) -> Any:
    try:
        return json.loads(request.body)
    except ValueError:
        raise Refused(400, "the object provided is unrecognized: it is no JSON") from None


def _body(request: Request) -> Json:
    content = _any_body(request)
    if not isinstance(content, dict):
        raise Refused(400, "the object provided is unrecognized: it is no object")
    return content


def _options(request: Request) -> Json:
    """Options of a deletion, which are in the body or in the query."""
    options = _body(request) if request.body else {}
    grace = request.argument("gracePeriodSeconds")
    return options | ({"gracePeriodSeconds": int(grace)} if grace.isdigit() else {})
