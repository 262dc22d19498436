# SPDX-License-Identifier: Apache-2.0
"""`SharedRoles`: cluster roles that stand for the role in each namespace, so that a node needs one call less (KU-3).

Two launchers may make one at the same moment, and an operator may have made it before: it is used as it is, unless
it gives other rights than nodes need.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.kubernetes import api, objects
from nodepool.driver.kubernetes.client import KubeClient

log = logging.getLogger("nodepool.driver.kubernetes.SharedRoles")

#: Seconds after which it is tried again whether a cluster role can be made: somebody may have given us the right.
AGAIN_SECONDS: Final = 600.0


class SharedRoles:
    """Makes them if they are missing. Thread-safe.

    :param required: False = nodes get a role of their namespace where a cluster role cannot be used.
    """

    def __init__(self, client: KubeClient, *, required: bool, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._required = required
        self._clock = clock
        # Looked at again from time to time: somebody may delete one.
        self._made = {is_pod: Fact(functools.partial(self._make, is_pod), clock) for is_pod in (True, False)}
        #: Names of those that are not used: a change is logged once.
        self._unused: set[str] = set()
        #: Until when none is used, because a binding to one was refused. Monotonic seconds.
        self._not_before = float("-inf")

    def name_of(self, is_pod: bool) -> str | None:
        """The role for what a node gets; None = it must be a role of its namespace. Blocks.

        :param is_pod: a pod, or a whole namespace.
        :raises LaunchError: what the API says.
        """
        if self._clock() < self._not_before:
            return None
        return self._made[is_pod].get(AGAIN_SECONDS)

    def forget(self) -> None:
        """One of them is missing."""
        for made in self._made.values():
            made.clear()

    def binding_refused(self, error: CloudRefused) -> None:
        """A binding to one of them was refused: it may give rights now that we do not have ourselves."""
        if not self._required:
            self._not_before = self._clock() + AGAIN_SECONDS
            self.forget()
            log.info("Provider %s: for a while each namespace gets a role of its own: %s", self._client.provider, error)

    def _make(self, is_pod: bool) -> str | None:
        role = objects.shared_role(is_pod)
        name = str(role["metadata"]["name"])
        try:
            made = api.create(self._client, api.CLUSTER_ROLES, role)
        except CloudRefused as error:
            if self._required or error.status != 403:
                raise
            self._unusable(
                name, f"{error}; give the account the right to create clusterroles: a node costs a call less"
            )
            return None
        if made is None and not self._required and self._gives_others(name, role):
            self._unusable(name, "it is there, and gives other rights than nodes need; correct or delete it")
            return None
        if name in self._unused:
            self._unused.discard(name)
            log.info("Provider %s: nodes get their rights from the cluster role %s now", self._client.provider, name)
        return name

    def _gives_others(self, name: str, role: api.Object) -> bool:
        """Does one that is there give other rights than ours? If we may not read it, nobody knows: it is used."""
        try:
            found = self._client.call("GET", f"{api.CLUSTER_ROLES}/{name}")
        except CloudRefused:
            return False
        return bool(_rights(found.get("rules") or []) != _rights(role["rules"]))

    def _unusable(self, name: str, why: str) -> None:
        if name not in self._unused:
            self._unused.add(name)
            log.info(
                "Provider %s: each namespace gets a role of its own, without the cluster role %s: %s",
                *(self._client.provider, name, why),
            )


def _rights(rules: list[api.Object]) -> set[tuple[str, str, str, str]]:
    """What rules allow, however it is written: group, resource, verb, and of which objects if not of all."""
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule.get("verbs") or ()
        for name in rule.get("resourceNames") or ("",)
    }
