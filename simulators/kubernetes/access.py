# SPDX-License-Identifier: Apache-2.0
"""Who asks, and what they may: tokens, and role-based access control."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from simulators.kubernetes.errors import Refused, forbidden
from simulators.kubernetes.kinds import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    PROJECT,
    PROJECT_REQUESTS,
    READ_WRITE,
    REVIEWS,
    ROLES,
    ObjectKind,
    ObjectPath,
)
from simulators.kubernetes.store import Store

Json = dict[str, Any]
MASTERS, AUTHENTICATED, OAUTH = "system:masters", "system:authenticated", "system:authenticated:oauth"


class AskingUser(NamedTuple):
    """Who asks. :param groups: they are in."""

    name: str
    groups: tuple[str, ...]


ANONYMOUS = AskingUser("system:anonymous", ("system:unauthenticated",))


class AccessQuestion(NamedTuple):
    """Whether something is allowed. :param resource: a plural, with ``/<subresource>`` if there is one."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def account_user(namespace: str, name: str) -> AskingUser:
    """A service account as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return AskingUser(f"system:serviceaccount:{namespace}:{name}", groups)


def new_token(subject: str) -> str:
    """A token that looks like one; no two are the same."""
    parts = ({"alg": "RS256", "kid": "simulated"}, {"iss": "kubernetes/serviceaccount", "sub": subject})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, secrets.token_urlsafe(32)])


class AccessControl:
    """Users by token, and what roles and bindings in the store allow them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._users: dict[str, AskingUser] = {}

    def add_user(self, name: str, *groups: str, token: str | None = None) -> str:
        """A user who has a token; they may have several. Returns the token."""
        token = token or new_token(name)
        self._users[token] = AskingUser(name, (*groups, AUTHENTICATED))
        return token

    def add_account(self, namespace: str, name: str) -> str:
        """A token of a service account."""
        token = new_token(f"system:serviceaccount:{namespace}:{name}")
        self._users[token] = account_user(namespace, name)
        return token

    def revoke(self, token: str) -> None:
        """The token is worth nothing any more."""
        self._users.pop(token, None)

    def user(self, authorization: str) -> AskingUser:
        """Who has sent this header.

        :raises Refused: 401, the token is not known.
        """
        if not authorization:
            return ANONYMOUS
        kind, _, token = authorization.partition(" ")
        user = self._users.get(token.strip())
        if kind.lower() != "bearer" or user is None:
            raise Refused(401, "Unauthorized")
        return user

    def check(self, user: AskingUser, verb: str, target: ObjectPath, group: str | None = None) -> None:
        """Refuses what the user may not do.

        :raises Refused: 403.
        """
        kind = target.kind
        resource = f"{kind.plural}/{target.subresource}" if target.subresource else kind.plural
        question = AccessQuestion(verb, kind.group if group is None else group, resource, target.namespace, target.name)
        if self.allows(user, question):
            return
        place = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        text = f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{kind.group}" {place}'
        what = f'{kind.resource} "{target.name}" is' if target.name else f"{kind.resource} is"
        details = {"kind": kind.plural} | ({"name": target.name} if target.name else {})
        raise Refused(403, f"{what} forbidden: {text}", details=details)

    def allows(self, user: AskingUser, question: AccessQuestion) -> bool:
        """May they?"""
        if MASTERS in user.groups:
            return True
        return any(_covers(rule, question) for rule in self._rules(user, question.namespace))

    def check_grant(self, user: AskingUser, kind: ObjectKind, content: Json) -> None:
        """Refuses a role or a binding that would give more than the user has (no escalation).

        :raises Refused: 403; 404, there is no such role.
        """
        if MASTERS in user.groups:
            return
        namespace = content["metadata"].get("namespace", "")
        name = content["metadata"]["name"]
        if kind in (ROLES, CLUSTER_ROLES):
            rules, verb, role = content.get("rules") or [], "escalate", name
        else:
            reference = content["roleRef"]
            role = reference["name"]
            found = CLUSTER_ROLES if reference["kind"] == "ClusterRole" else ROLES
            rules = self._store.get(found, "" if found is CLUSTER_ROLES else namespace, role).get("rules") or []
            kind_of_role, verb = found.plural, "bind"
            if self.allows(user, AccessQuestion(verb, ROLES.group, kind_of_role, namespace, role)):
                return
        if verb == "escalate" and self.allows(user, AccessQuestion(verb, kind.group, kind.plural, namespace, role)):
            return
        missing = [
            f'{{APIGroups:["{group}"], Resources:["{resource}"], Verbs:["{verb_}"]}}'
            for rule in rules
            for group in rule.get("apiGroups") or []
            for resource in rule.get("resources") or []
            for verb_ in rule.get("verbs") or []
            if not self.allows(user, AccessQuestion(verb_, group, resource, namespace))
        ]
        if missing:
            groups = " ".join(f'"{group}"' for group in user.groups)
            text = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
            )
            raise forbidden(kind, name, text + "\n".join(missing))

    def _rules(self, user: AskingUser, namespace: str) -> Iterator[Json]:
        for binding in self._store.all(CLUSTER_BINDINGS):
            if _bound(binding, user):
                yield from self._rules_of(binding, "")
        if namespace:
            for binding in self._store.all(BINDINGS, namespace):
                if _bound(binding, user):
                    yield from self._rules_of(binding, namespace)

    def _rules_of(self, binding: Json, namespace: str) -> Sequence[Json]:
        reference = binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            role = self._store.find(CLUSTER_ROLES, "", reference["name"])
        else:
            role = self._store.find(ROLES, namespace, reference["name"])
        return (role or {}).get("rules") or ()


def _bound(binding: Json, user: AskingUser) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "ServiceAccount":
            namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
            if user.name == f"system:serviceaccount:{namespace}:{name}":
                return True
        elif (kind == "User" and user.name == name) or (kind == "Group" and name in user.groups):
            return True
    return False


def _covers(rule: Json, question: AccessQuestion) -> bool:
    names = rule.get("resourceNames") or []
    return (
        _has(rule.get("verbs"), question.verb)
        and _has(rule.get("apiGroups"), question.group)
        and (_has(rule.get("resources"), question.resource) or _has_subresource(rule, question))
        and (not names or question.name in names)
    )


def _has(found: list[str] | None, wanted: str) -> bool:
    return found is not None and (wanted in found or "*" in found)


def _has_subresource(rule: Json, question: AccessQuestion) -> bool:
    _, slash, subresource = question.resource.partition("/")
    return bool(slash) and f"*/{subresource}" in (rule.get("resources") or [])


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def first_roles() -> Iterator[Json]:
    """Cluster roles that every cluster has, as far as they matter here."""
    in_core = ("pods", "pods/exec", "pods/log", "pods/portforward", "services", "endpoints", "configmaps", "secrets")
    work = [
        _rule("", (*in_core, "serviceaccounts", "persistentvolumeclaims"), READ_WRITE),
        _rule("apps", ("deployments", "replicasets"), READ_WRITE),
        _rule("batch", ("jobs", "cronjobs"), READ_WRITE),
        _rule("", ("namespaces", "resourcequotas", "limitranges", "pods/status"), ("get", "list", "watch")),
    ]
    grants = [
        _rule(ROLES.group, ("roles", "rolebindings"), READ_WRITE),
        _rule("authorization.openshift.io", ("roles", "rolebindings"), READ_WRITE),
        _rule(PROJECT.group, ("projects",), ("delete", "get", "patch", "update")),
    ]
    yield {"metadata": {"name": "cluster-admin"}, "rules": [_rule("*", ("*",), ("*",))]}
    yield {"metadata": {"name": "edit"}, "rules": work}
    yield {"metadata": {"name": "admin"}, "rules": work + grants}
    reviews = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    yield {"metadata": {"name": "system:basic-user"}, "rules": [_rule(REVIEWS, reviews, ("create",))]}


def openshift_roles() -> Iterator[Json]:
    """Cluster roles of OpenShift."""
    rules = [
        _rule(PROJECT.group, ("projects",), ("list", "watch")),
        _rule(PROJECT.group, (PROJECT_REQUESTS.plural,), ("list",)),
    ]
    yield {"metadata": {"name": "basic-user"}, "rules": rules}
    rules = [_rule(PROJECT.group, (PROJECT_REQUESTS.plural,), ("create",))]
    yield {"metadata": {"name": "self-provisioner"}, "rules": rules}


def cluster_binding(role: str, group: str) -> Json:
    """Everybody in the group has the cluster role, everywhere."""
    subject = {"kind": "Group", "apiGroup": ROLES.group, "name": group}
    reference = {"kind": "ClusterRole", "apiGroup": ROLES.group, "name": role}
    return {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
