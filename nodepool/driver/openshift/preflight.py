# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out for both drivers of OpenShift. Only reads."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

from nodepool.driver.framework.checks import CheckResult, failure
from nodepool.driver.kubernetes.client import NAMESPACES, KubeClient
from nodepool.driver.kubernetes.preflight import Right, RightsCheck, guarded, quotas, reach, rights, told_rights

_GROUP: Final = "project.openshift.io"
PROJECT_RIGHTS: Final = [*rights("projectrequests", "create", _GROUP), *rights("projects", "list", _GROUP)]
POD_RIGHTS: Final = rights("pods", "create delete get list watch")


def of_openshift(config: Any, client: KubeClient) -> Iterator[CheckResult]:
    """Results for ``driver: openshift``."""
    first = reach(config.name, client, config.context)
    yield first
    if first.ok:
        remedy = "give the user the role: oc adm policy add-cluster-role-to-user self-provisioner USER"
        check = RightsCheck(client)
        yield from guarded(config.name, "rights", lambda: told_rights("rights", check.missing(PROJECT_RIGHTS), remedy))


def of_pods(config: Any, client: KubeClient) -> Iterator[CheckResult]:
    """Results for ``driver: openshiftpods``."""
    first = reach(config.name, client, config.context)
    yield first
    if not first.ok:
        return
    if client.connection.access().bearer_token() is None:
        text = "we log in by a client certificate, which jobs cannot use: their nodes have no token"
        yield failure("token", f"{text}; use a context whose user has a token")
    for pool in config.pools.values():
        yield from guarded(config.name, f"project {pool.name}", functools.partial(_project, pool, client))


def _project(pool: Any, client: KubeClient) -> list[CheckResult]:
    subject, check = f"project {pool.name}", RightsCheck(client, pool.name)
    missing = check.missing(POD_RIGHTS)
    remedy = f"give the user the role: oc -n {pool.name} policy add-role-to-user edit USER"
    found = told_rights(subject, missing, remedy)
    if missing:
        return found
    if check.may(Right("get", "namespaces")):
        # Rights can be there before the project is.
        client.call("GET", f"{NAMESPACES}/{pool.name}")
    if check.may(Right("list", "resourcequotas")):
        found += quotas(client, pool.name, pool.max_servers)
    return found
