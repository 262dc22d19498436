# SPDX-License-Identifier: Apache-2.0
"""Paths of the API, and the calls that more than one part makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.errors import OtherOfTheName, exists
from nodepool.driver.statemachine import metadata as tags

NAMESPACES: Final = "/api/v1/namespaces"
PROJECTS: Final = "/apis/project.openshift.io/v1/projects"
PROJECT_REQUESTS: Final = "/apis/project.openshift.io/v1/projectrequests"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NODES: Final = "/api/v1/nodes"
CLUSTER_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces"
_OPENSHIFT_RBAC: Final = "/apis/authorization.openshift.io/v1/namespaces"

Object = dict[str, Any]


def core(plural: str, place: str | None = None) -> str:
    """Path of a kind of the core group, in a namespace or (None) in all of them."""
    return f"{NAMESPACES}/{place}/{plural}" if place else f"/api/v1/{plural}"


def rbac(plural: str, place: str) -> str:
    return f"{_RBAC}/{place}/{plural}"


def openshift_rbac(plural: str, place: str) -> str:
    return f"{_OPENSHIFT_RBAC}/{place}/{plural}"


def selector_of(provider: str) -> str:
    """Selects what is made for nodes of a provider."""
    return f"{tags.PROVIDER_KEY}={provider}"


def create(client: KubeClient, path: str, body: Object, permit: Callable[[], None] = lambda: None) -> Object | None:
    """Create an object; None = there is one of the name, or the answer does not have it. Blocks.

    :param permit: see `KubeClient.call`.
    """
    try:
        made: Object = client.call("POST", path, body, permit=permit)
    except CloudRefused as error:
        if exists(error):
            return None
        raise
    return made if made.get("metadata") else None


def delete(client: KubeClient, path: str, uid: str | None) -> None:
    """Order the deletion of an object; what belongs to it is deleted behind its back. Blocks for the order only.

    :param uid: of the object; another one of the same name is not deleted. None = whichever it is.
    :raises CloudNotFound: it is gone; OtherOfTheName: and there is another one.
    """
    body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    if uid:
        body["preconditions"] = {"uid": uid}
    try:
        client.call("DELETE", path, body)
    except CloudRefused as error:
        if error.status != 409:
            raise
        if "uid" in error.said.lower() and "precondition" in error.said.lower():
            raise OtherOfTheName(str(error), 404, error.said) from None
        # It is being deleted already.
