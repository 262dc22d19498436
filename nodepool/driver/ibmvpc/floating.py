# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of nodes (`IbmFloatingIps`). IBM bills each for a whole month, so free ones are used again (IV-13).

A free one keeps the name of its last node. IBM has no call that binds, renames or deletes a floating IP only if it is
free: its API takes no ``If-Match`` for them. A binding replaces the one before, and a deletion takes the address of
whatever it is bound to. So each has one launcher, the one that named it last, and launchers keep to these rules:

* A launcher binds or deletes only what bears a name that it gave itself: that of a node for which it bound the floating
  IP, or a name with its own id.
* It takes over what another one named, with a name with its own id, when the instance is deleted here, or in the sweep
  when it has been free under the same name for `SETTLED_SECONDS`: the other launcher has stopped, or has no use for it.
  It is its own `GRACE_SECONDS` later: until then a call of the other one may be under way.
* Of a pool that keeps none no launcher uses any again, and each launcher deletes them.

When the turn of a call has come, what is known must not be older than `LOOK_SECONDS`; else IBM is asked again. So two
launchers are never at the same one, unless one of them stops for that long between its look and its call.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound, CloudQuota, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.client import IbmVpc
from nodepool.driver.ibmvpc.config import IbmProviderConfig
from nodepool.driver.ibmvpc.types import AVAILABLE, IbmFloatingIp, own_name, passes
from nodepool.driver.statemachine.instance import POOL_KEY, PROVIDER_KEY
from nodepool.exceptions import LaunchError, LaunchStatusException

log = logging.getLogger("nodepool.driver.ibmvpc.floating")

#: How old a list may be by which a free one is bound, when the call begins.
LOOK_SECONDS: Final = 20.0
#: How long after it was taken over another launcher may still bind it: longer than a look and a call take together.
GRACE_SECONDS: Final = 120.0
#: One that another launcher named is taken over when it was free for so long. A launcher of Nodepool 11.0.0 makes one
#: before its instance.
SETTLED_SECONDS: Final = 300.0
#: Attempts of a call that got no answer.
ATTEMPTS: Final = 4
#: IBM shows no limits. So a zone counts as used up for so long, unless a floating IP of it becomes free before.
SHORT_SECONDS: Final = 60.0


class _Overtaken(Exception):
    """When the turn of a call came the floating IP was not free any more, or what is known is too old."""


class IbmFloatingIps:
    """Of one provider. Thread-safe; ``_lock`` guards what is known, and is not held while IBM is asked."""

    def __init__(self, config: IbmProviderConfig, client: IbmVpc) -> None:
        self._config = config
        self._client = client
        #: In names that this launcher gives.
        self._id = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._list: Fact[list[IbmFloatingIp]] = Fact(self._ask)
        #: Of this provider, by id, as last seen, and when the latest list began.
        self._known: dict[str, IbmFloatingIp] = {}
        self._listed_at = float("-inf")
        #: By id the name under which it is free, and since when.
        self._free: dict[str, tuple[str, float]] = {}
        #: By id the name that this launcher gave, and when it may use it again.
        self._own: dict[str, tuple[str, float]] = {}
        #: Those that a thread binds or deletes.
        self._taken: set[str] = set()
        #: By zone that has no more: until when that counts, and what IBM says.
        self._shortages: dict[str, tuple[float, CloudQuota]] = {}

    def all(self) -> list[IbmFloatingIp]:
        """Of this provider, as they are now. Blocks."""
        return [floating for floating in self._list.get_new() if self._is_ours(floating)]

    def shortage(self, zone: str) -> CloudQuota | None:
        """Why no instance of a zone gets one now; None = it may. Does not block."""
        with self._lock:
            until, error = self._shortages.get(zone, (float("-inf"), None))
            return error if until > monotonic() else None

    def _is_ours(self, floating: IbmFloatingIp) -> bool:
        return floating.metadata.get(PROVIDER_KEY) == self._config.name

    def _ask(self) -> list[IbmFloatingIp]:
        started = monotonic()
        found = self._client.floating_ips()
        with self._lock:
            self._listed_at = started
            # What was bound or made while the list was under way may not be in it yet.
            own, known = self._own.items(), self._known
            late = {key: known[key] for key, (_, since) in own if since >= started and key in known}
            self._known = {floating.id: floating for floating in found if self._is_ours(floating)} | late
            before, self._free = self._free, {}
            for one in self._known.values():
                if one.free:
                    seen = before.get(one.id, ("", started))
                    self._free[one.id] = seen if seen[0] == one.name else (one.name, started)
            self._own = {key: own for key, own in self._own.items() if key in self._known}
        return found

    # -- binding --

    def bind(self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None]) -> IbmFloatingIp:
        """Have one bound to an interface. Blocks.

        :param name: of the instance; the floating IP gets it, too.
        :param group_id: of the resource group of its pool.
        :param permit: asked before each call.
        :raises CloudQuota: there are no more.
        :raises LaunchError: IBM rejected it, is away, or made one that does not work.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return self._bind(name, group_id, zone, interface_id, permit)
            except _Overtaken:
                log.debug("Provider %s: a floating IP for %s is looked for again", self._config.name, name)
            except (CloudRefused, CloudAway) as error:
                if not passes(error) and not self._is_bound(error, interface_id):
                    raise
                log.debug("Provider %s: %s", self._config.name, error)
            self._list.clear()
        return self._make(name, group_id, zone, interface_id, permit)

    def _is_bound(self, error: Exception, interface_id: str) -> bool:
        """Was a call refused because an earlier one without an answer has bound one? May block for a list."""
        if not isinstance(error, CloudRefused) or isinstance(error, (CloudQuota, CloudNoCapacity)):
            return False
        return any(one.target == interface_id for one in self._list.get_new())

    def _bind(
        self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        listed = self._list.get(LOOK_SECONDS / 2)
        mine = next((one for one in listed if one.target == interface_id), None)
        if mine is not None:
            # By a call that was not answered.
            return self._bound(mine)
        with self._lock:
            free = [one for one in self._known.values() if one.free and one.id not in self._taken]
            # First that whose name is needed: names are unique.
            found = [one for one in free if one.name == name] or [
                one for one in free if (one.group_id, one.zone) == (group_id, zone) and self._is_own(one)
            ]
            self._taken.update(one.id for one in found[:1])
        if not found:
            return self._make(name, group_id, zone, interface_id, permit)
        chosen = found[0]

        def still_free() -> None:
            permit()
            with self._lock:
                known, age = self._known.get(chosen.id), monotonic() - self._listed_at
            if known is not None and age > LOOK_SECONDS:
                # The list of a large account takes longer.
                try:
                    known = self._client.floating_ip(chosen.id)
                except CloudNotFound:
                    known = None
            if known is None or not known.free or known.name != chosen.name:
                raise _Overtaken

        try:
            bound = self._client.bind_floating_ip(chosen.id, name, interface_id, still_free)
        finally:
            with self._lock:
                self._taken.discard(chosen.id)
        log.debug("Provider %s: floating IP %s is used again", self._config.name, bound.address)
        return self._bound(bound)

    def _make(
        self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        try:
            return self._bound(self._client.create_floating_ip(name, group_id, interface_id, permit))
        except CloudQuota as error:
            with self._lock:
                self._shortages[zone] = monotonic() + SHORT_SECONDS, error
            raise

    def _bound(self, floating: IbmFloatingIp) -> IbmFloatingIp:
        """The same. Raises LaunchStatusException if no node can use it."""
        with self._lock:
            self._known[floating.id] = floating
            self._free.pop(floating.id, None)
            self._own[floating.id] = floating.name, monotonic()
        if floating.failed:
            text = f"Provider {self._config.name}: floating IP {floating.address or floating.id} is {floating.status}"
            raise LaunchStatusException(text)
        return floating

    def _is_own(self, floating: IbmFloatingIp) -> bool:
        """May this launcher bind or delete a free one? With the lock."""
        name, since = self._own.get(floating.id, ("", 0.0))
        return floating.name == name and monotonic() >= since and not self._kept_none(floating)

    # -- what is free --

    def release(self, name: str) -> None:
        """The instance of a name is deleted. Its floating IP is kept for another one, or deleted. Blocks."""
        with self._lock:
            found = next((one for one in self._known.values() if one.name == name), None)
        found = found or next((one for one in self.all() if one.name == name), None)
        if found is None:
            return
        with self._lock:
            if found.id in self._taken or self._known.get(found.id, found).name != name:
                # That of another node by now.
                return
            free = found if found.failed else found._replace(target="", status=AVAILABLE)
            self._known[found.id] = free
            self._free.setdefault(found.id, (name, monotonic()))
            self._shortages.pop(found.zone, None)
            own = self._is_own(free)
            goes = self._is_anyones(free) or (own and free in self._surplus())
        if goes:
            self.delete_free(found.id, name)
        elif not own:
            self._take_over(free)

    def left_over(self) -> list[IbmFloatingIp]:
        """Free ones of this provider that are more than its pools keep, and failed ones. Blocks.

        One that a launcher may be at is not among them. What a launcher left that has stopped is taken over.
        """
        self.all()
        with self._lock:
            unused = [one for one in self._known.values() if one.unused and one.id not in self._taken]
            surplus = self._surplus()
            goes = [one for one in unused if self._is_anyones(one) or (one in surplus and self._is_own(one))]
            others = [one for one in unused if one not in goes and self._own.get(one.id, ("",))[0] != one.name]
            before = monotonic() - SETTLED_SECONDS
            settled = [one for one in others if self._free.get(one.id, ("", before + 1))[1] <= before]
        for one in settled:
            self._take_over(one)
        return goes

    def _take_over(self, floating: IbmFloatingIp) -> None:
        """Have it for the launches of this launcher, or delete it later. Blocks."""
        try:
            named = self._client.rename_floating_ip(floating.id, own_name(floating.name, self._id))
        except (LaunchError, CloudAway) as error:
            # The sweep tries it again.
            log.debug("Provider %s: floating IP %s is not taken over: %s", self._config.name, floating.id, error)
            return
        with self._lock:
            self._known[named.id] = named
            self._own[named.id] = named.name, monotonic() + GRACE_SECONDS

    def _is_anyones(self, floating: IbmFloatingIp) -> bool:
        """May each launcher delete one that no instance has? It will never work, or its pool keeps none."""
        return floating.failed or self._kept_none(floating)

    def _kept_none(self, floating: IbmFloatingIp) -> bool:
        pool = self._config.pools.get(floating.metadata.get(POOL_KEY, ""))
        return pool is not None and pool.public_ipv4 and not pool.floating_ip_pool

    def _surplus(self) -> list[IbmFloatingIp]:
        """Free ones that are more than their pools keep: for all launchers the same. With the lock."""
        by_pool: dict[str, list[IbmFloatingIp]] = {}
        for one in sorted(self._known.values(), key=lambda one: (one.created, one.id)):
            if one.free:
                by_pool.setdefault(one.metadata[POOL_KEY], []).append(one)
        pools = self._config.pools
        kept = {name: pools[name].floating_ip_pool for name in by_pool if name in pools and pools[name].public_ipv4}
        return [one for name, free in by_pool.items() for one in free[kept.get(name, 0) :]]

    def delete_free(self, floating_id: str, name: str) -> None:
        """Delete one that is left over, unless it is used again. Blocks.

        :param name: that it had when no node used it.
        """
        with self._lock:
            if floating_id in self._taken:
                return
            self._taken.add(floating_id)

        def still_unused() -> None:
            found = self._client.floating_ip(floating_id)
            if not found.unused or found.name != name:
                raise _Overtaken

        try:
            self._client.delete("floating_ip", floating_id, still_unused)
        except _Overtaken:
            log.debug("Provider %s: floating IP %s is used again, and stays", self._config.name, floating_id)
        except CloudNotFound:
            log.debug("Provider %s: there is no floating IP %s any more", self._config.name, floating_id)
        finally:
            with self._lock:
                # The next list shows it if it is still there.
                self._known.pop(floating_id, None)
                self._taken.discard(floating_id)
