# SPDX-License-Identifier: Apache-2.0
"""`DefaultAccounts`: tells launches when the cluster has made the service account of their namespace.

The API takes no pod before that. The controller that makes it is limited to some 20 namespaces a second, so pods of a
burst would be sent again and again. Before Kubernetes 1.24 a pod that gets a token also waits until the account names a
secret with one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nodepool.driver.framework.rate import HeldTime, HeldTogether, held_work
from nodepool.driver.kubernetes.client import KubeClient, core
from nodepool.driver.kubernetes.objects import DEFAULT_ACCOUNT
from nodepool.driver.kubernetes.watch import Listener, Watch
from nodepool.exceptions import LaunchError

log = logging.getLogger("nodepool.driver.kubernetes.DefaultAccounts")

Object = dict[str, Any]

KIND: Final = "account"


class DefaultAccounts(Listener):
    """One watch of these accounts; it begins with the first launch that waits. Thread-safe.

    :param client: of the cluster.
    """

    def __init__(self, client: KubeClient) -> None:
        self._provider = client.provider
        self._held = HeldTogether(self._work)
        fields = f"metadata.name={DEFAULT_ACCOUNT}"
        self._watch = Watch(client, KIND, core("serviceaccounts"), "", self, fields, (self._held,))
        #: Guards what follows.
        self._lock = threading.Lock()
        self._started = self._stopped = False
        #: Does the watch tell of accounts?
        self._watching = False
        #: Does the cluster take no pod before the account has a token?
        self._tokens_needed = False
        #: Namespaces whose launch waits; those of them that have an account, and whether that has a token.
        self._waiting: dict[str, _WaitingLaunch] = {}
        self._there: dict[str, bool] = {}

    def wait_for(self, namespace: str, wake: Callable[[], None], token: bool = True) -> None:
        """A launch begins, before it makes its namespace.

        :param wake: called in the thread of the watch; must not block.
        :param token: does the pod get a token of the account?
        """
        work = held_work()
        with self._lock:
            self._waiting[namespace] = _WaitingLaunch(wake, token, work)
            self._there.pop(namespace, None)
            starts = not self._started and not self._stopped
            if starts:
                self._started = True
                self._watch.start()
        self._held.join(work)

    def over(self, namespace: str) -> None:
        """The launch has ended, or its pod was made."""
        with self._lock:
            self._waiting.pop(namespace, None)
            self._there.pop(namespace, None)

    def is_missing(self, namespace: str) -> bool:
        """Has the cluster not made the account, or its token, yet? False = it has, or nobody knows."""
        with self._lock:
            waiting = self._waiting.get(namespace)
            if waiting is None or not self._watching:
                return False
            has_token = self._there.get(namespace)
            return has_token is None or (self._tokens_needed and waiting.token and not has_token)

    def need_tokens(self) -> None:
        """The cluster has refused a pod because the account has no token."""
        with self._lock:
            self._tokens_needed = True

    def stop(self) -> None:
        """End; the client must be closed, too."""
        with self._lock:
            self._stopped = True
        self._watch.stop()

    def join(self) -> None:
        """Wait for the end, after `stop`."""
        self._watch.join()

    def _work(self) -> list[HeldTime]:
        with self._lock:
            return [held for waiting in self._waiting.values() for held in waiting.work]

    # -- what the watch tells --

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        with self._lock:
            self._watching = True
            # Those of namespaces that went while nobody was told of it.
            for namespace in self._there.keys() - {_namespace_of(account) for account in found}:
                del self._there[namespace]
            woken = [wake for account in found if (wake := self._made(account)) is not None]
        for wake in woken:
            wake()

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        with self._lock:
            if gone:
                self._there.pop(_namespace_of(found), None)
                return
            wake = self._made(found)
        if wake is not None:
            wake()

    def refused(self, kind: str, error: LaunchError | None) -> None:
        with self._lock:
            self._watching = error is None
            waiting = [waiting.wake for waiting in self._waiting.values()]
        if error is not None:
            log.info(
                "Provider %s: accounts cannot be watched, pods are sent until they are taken: %s", self._provider, error
            )
            for wake in waiting:
                wake()

    def _made(self, account: Object) -> Callable[[], None] | None:
        """Who is to be woken. Called with the lock."""
        namespace = _namespace_of(account)
        waiting = self._waiting.get(namespace)
        has_token = any("-token-" in str(secret.get("name")) for secret in account.get("secrets") or [])
        if waiting is None or self._there.get(namespace) == has_token:
            return None
        is_news = namespace not in self._there or (self._tokens_needed and waiting.token)
        self._there[namespace] = has_token
        return waiting.wake if is_news else None


class _WaitingLaunch(NamedTuple):
    """A launch; see `DefaultAccounts.wait_for`."""

    wake: Callable[[], None]
    token: bool
    work: tuple[HeldTime, ...]


def _namespace_of(account: Object) -> str:
    return str((account.get("metadata") or {}).get("namespace"))
