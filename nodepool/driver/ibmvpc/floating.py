# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of nodes (`IbmFloatingIps`). IBM bills each for a whole month, so free ones are used again (IV-13).

A free one keeps the name of its last node. IBM has no call that binds, renames or deletes a floating IP only if it is
free: its API takes no ``If-Match`` for them. A binding replaces the one before, and a deletion takes the address of
whatever it is bound to. So launchers that share them keep to these rules:

* What a launcher has just freed is its own for `OWN_SECONDS` from the order that deleted the instance. It binds or
  deletes it at once.
* Others leave alone what has not been free, under the same name, for `SETTLED_SECONDS`.
* A launcher that wants one that is not its own claims it first: it renames it to a name that no other launcher gives.
  If it is still free under that name `CLAIM_SECONDS` later, it is its own. If not, another launcher was faster.
* Of a pool that keeps none no launcher uses again what others freed, and any launcher deletes it.

Before each call that binds, claims or deletes one it is looked at again when the turn of the call has come. So two
launchers are never at the same one, unless one of them stops for a minute between that look and its call. Last how
many free ones a pool keeps, and zones whose quota is used up.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound, CloudQuota, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.errors import passes
from nodepool.driver.ibmvpc.types import AVAILABLE, IbmFloatingIp, claim_name
from nodepool.driver.statemachine.instance import POOL_KEY, PROVIDER_KEY
from nodepool.exceptions import LaunchStatusException

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.client import IbmVpc
    from nodepool.driver.ibmvpc.config import IbmProviderConfig

log = logging.getLogger("nodepool.driver.ibmvpc.floating")

#: How old a list may be by which a free one is taken, when the call begins.
CHOICE_SECONDS: Final = 2.0
#: How long after its claim one may still be claimed by another launcher: the call of that may be under way.
CLAIM_SECONDS: Final = 3 * CHOICE_SECONDS
#: One that others freed or claimed is left alone for so long. A launcher of Nodepool 11.0.0 makes one before its
#: instance.
SETTLED_SECONDS: Final = 120.0
#: One that this launcher freed or claimed is nobody else's for so long: a call takes less than the rest.
OWN_SECONDS: Final = SETTLED_SECONDS / 2
#: Attempts of a call that got no answer, and of choices that others were faster with.
ATTEMPTS: Final = 4


class Claim(NamedTuple):
    """A free one that this launcher has claimed.

    :param ready_at: look then whether it is still its own; ``ends_at``: it is not any more.
    """

    floating: IbmFloatingIp
    ready_at: float
    ends_at: float


class _Overtaken(Exception):
    """When the turn of a call came the floating IP was not free any more, or nobody knows in time."""


class _Seen(NamedTuple):
    """A free one, and since when it has been free under its name, as far as it was seen."""

    name: str
    since: float


class IbmFloatingIps:
    """Of one provider. Thread-safe; ``_lock`` guards what is known, and is not held while IBM is asked."""

    def __init__(self, config: IbmProviderConfig, client: IbmVpc, clock: Callable[[], float] = monotonic) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._list: Fact[list[IbmFloatingIp]] = Fact(self._ask, clock)
        #: Of this provider, by id, as last seen.
        self._known: dict[str, IbmFloatingIp] = {}
        self._free: dict[str, _Seen] = {}
        #: Until when one that this launcher freed is its own.
        self._own_until: dict[str, float] = {}
        #: Those that a thread has chosen, or deletes.
        self._taken: set[str] = set()
        #: When the latest list began, and how long it took.
        self._listed_at = float("-inf")
        self._list_seconds = 0.0
        self.shortages = AddressShortages(clock)
        self._kept = KeptAddresses(config)

    def all(self) -> list[IbmFloatingIp]:
        """Of this provider, as they are now. Blocks."""
        return [floating for floating in self._list.get_new() if self._is_ours(floating)]

    def _is_ours(self, floating: IbmFloatingIp) -> bool:
        return floating.metadata.get(PROVIDER_KEY) == self._config.name

    def _ask(self) -> list[IbmFloatingIp]:
        started = self._clock()
        found = self._client.floating_ips()
        with self._lock:
            self._listed_at, self._list_seconds = started, self._clock() - started
            self._known = {floating.id: floating for floating in found if self._is_ours(floating)}
            before, self._free = self._free, {}
            for one in self._known.values():
                if one.free:
                    seen = before.get(one.id)
                    same = seen is not None and seen.name == one.name
                    self._free[one.id] = seen if seen is not None and same else _Seen(one.name, started)
            self._own_until = {key: until for key, until in self._own_until.items() if until > started}
        return found

    # -- binding --

    def bind(
        self,
        name: str,
        group_id: str,
        zone: str,
        interface_id: str,
        permit: Callable[[], None],
        *,
        may_claim: bool = True,
    ) -> IbmFloatingIp | Claim:
        """Have one bound to an interface, or claim one for it: then `take` it in time. Blocks.

        :param name: of the instance; the floating IP gets it, too.
        :param group_id: of the resource group of its pool.
        :param permit: asked before each call.
        :raises CloudQuota: there are no more.
        :raises LaunchError: IBM rejected it, is away, or made one that does not work.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return self._bind(name, group_id, zone, interface_id, permit, may_claim)
            except _Overtaken:
                continue
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
        self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None], may_claim: bool
    ) -> IbmFloatingIp | Claim:
        listed = self._list.get(CHOICE_SECONDS / 2)
        mine = next((one for one in listed if one.target == interface_id), None)
        if mine is not None:
            # By a call that was not answered.
            return self._working(mine)
        chosen, own_until = self._choose(name, group_id, zone, may_claim)
        if chosen is None:
            return self._make(name, group_id, zone, interface_id, permit)
        try:
            if own_until is None:
                return self._claim(chosen, permit)
            return self._take(chosen, own_until, name, interface_id, permit)
        finally:
            with self._lock:
                self._taken.discard(chosen.id)

    def _choose(
        self, name: str, group_id: str, zone: str, may_claim: bool
    ) -> tuple[IbmFloatingIp | None, float | None]:
        """A free one that nobody else is at, if there is one; and until when it is this launcher's own, if it is."""
        with self._lock:
            now = self._clock()
            all_free = [one for one in self._known.values() if one.free and one.id not in self._taken]
            named = [one for one in all_free if one.name == name]
            free = [one for one in all_free if (one.group_id, one.zone) == (group_id, zone)]
            own = [one for one in free if self._own_until.get(one.id, now) > now]
            settled = [one for one in free if may_claim and self._is_settled(one) and not self._kept.none(one)]
            # First that whose name is needed: of an order that was not answered, or of an instance that is gone.
            found = named or own or settled
            if not found:
                return None, None
            # Launchers shall not all choose the same one.
            chosen = random.Random(name).choice(found)
            self._taken.add(chosen.id)
            return chosen, self._own_until.get(chosen.id) if chosen in own else None

    def _is_settled(self, floating: IbmFloatingIp) -> bool:
        """Is nobody else at one? With the lock."""
        seen = self._free.get(floating.id)
        return seen is not None and seen.name == floating.name and self._clock() - seen.since >= SETTLED_SECONDS

    def _claim(self, floating: IbmFloatingIp, permit: Callable[[], None]) -> Claim:
        """Claim a free one. Blocks. Raises _Overtaken."""

        def still_free() -> None:
            permit()
            self._check(floating)

        claimed = self._client.rename_floating_ip(floating.id, claim_name(floating.name), still_free)
        if not claimed.free:
            raise _Overtaken
        now = self._clock()
        with self._lock:
            self._known[claimed.id] = claimed
            self._free[claimed.id] = _Seen(claimed.name, now)
        return Claim(claimed, now + CLAIM_SECONDS, now + OWN_SECONDS)

    def take(self, claim: Claim, name: str, interface_id: str, permit: Callable[[], None]) -> IbmFloatingIp | None:
        """Bind one that was claimed, when it is time for that. Blocks.

        :returns: None = another launcher was faster, or it is not known whether it is bound: `bind` again.
        :raises LaunchError: as `bind`.
        """
        floating = claim.floating
        with self._lock:
            if floating.id in self._taken:
                return None
            self._taken.add(floating.id)
        try:
            return self._take(floating, claim.ends_at, name, interface_id, permit)
        except _Overtaken:
            log.debug("Provider %s: claimed floating IP %s is somebody else's", self._config.name, floating.id)
        except (CloudRefused, CloudAway) as error:
            if not passes(error):
                raise
            log.debug("Provider %s: %s", self._config.name, error)
        finally:
            with self._lock:
                self._taken.discard(floating.id)
        self._list.clear()
        return None

    def _take(
        self, floating: IbmFloatingIp, own_until: float, name: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        """Bind one that is this launcher's own. Blocks. Raises _Overtaken."""

        def still_own() -> None:
            permit()
            self._check(floating)
            if self._clock() >= own_until:
                raise _Overtaken

        bound = self._client.bind_floating_ip(floating.id, name, interface_id, still_own)
        self._bound(bound)
        log.debug("Provider %s: floating IP %s is used again", self._config.name, bound.address)
        return self._working(bound)

    def _check(self, floating: IbmFloatingIp) -> None:
        """Is one still free under its name? Blocks; raises _Overtaken, CloudNotFound."""
        found, seen_at = self._now(floating.id)
        if found is None or not found.free or found.name != floating.name:
            raise _Overtaken
        if self._clock() - seen_at > CHOICE_SECONDS:
            raise _Overtaken

    def _now(self, floating_id: str) -> tuple[IbmFloatingIp | None, float]:
        """One as it is now, and when it was seen so. Blocks; raises CloudNotFound.

        A list is for all launches. In a large account it takes too long, then this one is asked for.
        """
        if self._list_seconds <= CHOICE_SECONDS / 2:
            self._list.get(CHOICE_SECONDS / 2)
        with self._lock:
            found, seen_at = self._known.get(floating_id), self._listed_at
        if self._clock() - seen_at <= CHOICE_SECONDS:
            return found, seen_at

        def begins() -> None:
            nonlocal seen_at
            seen_at = self._clock()

        found = self._client.floating_ip(floating_id, begins)
        with self._lock:
            self._known[floating_id] = found
        return found, seen_at

    def _make(
        self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        try:
            made = self._client.create_floating_ip(name, group_id, interface_id, permit)
        except CloudQuota as error:
            self.shortages.refused(zone, error)
            raise
        self._bound(made)
        return self._working(made)

    def _working(self, floating: IbmFloatingIp) -> IbmFloatingIp:
        """The same. Raises LaunchStatusException if no node can use it."""
        if floating.failed:
            text = f"Provider {self._config.name}: floating IP {floating.address or floating.id} is {floating.status}"
            raise LaunchStatusException(text)
        return floating

    def _bound(self, floating: IbmFloatingIp) -> None:
        with self._lock:
            self._known[floating.id] = floating
            self._free.pop(floating.id, None)
            self._own_until.pop(floating.id, None)

    # -- what is free --

    def release(self, name: str, bound_at: float) -> None:
        """The instance of a name is gone. Its floating IP is kept for another one, or deleted. Blocks.

        :param bound_at: when it still was bound for certain. If that is long ago the sweep deletes what is too many.
        """
        with self._lock:
            found = next((one for one in self._known.values() if one.name == name), None)
        if found is None:
            found = next((one for one in self.all() if one.name == name), None)
        if found is None or self._keep(found, bound_at + OWN_SECONDS):
            return
        try:
            self.delete_free(found.id, name)
        except CloudNotFound:
            log.debug("Floating IP %s is gone already", found.address)

    def _keep(self, floating: IbmFloatingIp, own_until: float) -> bool:
        """Is one that became free kept, or that of another node by now?"""
        with self._lock:
            now = self._clock()
            if floating.id in self._taken or self._known.get(floating.id, floating).name != floating.name:
                return True
            if floating.failed:
                self._known.pop(floating.id, None)
                return False
            self._known[floating.id] = floating._replace(target="", status=AVAILABLE)
            self._free.setdefault(floating.id, _Seen(floating.name, now))
            self.shortages.freed(floating.zone)
            if self._kept.none(floating):
                return False
            if own_until <= now:
                return True
            self._own_until[floating.id] = own_until
            free = [one for one in self._known.values() if one.group == floating.group and one.free]
            return len(free) <= self._kept.of(floating)

    def left_over(self) -> list[IbmFloatingIp]:
        """Free ones of this provider that are more than its pools keep, and failed ones. Blocks for a list.

        One that a launcher may be at is not among them.
        """
        self.all()
        with self._lock:
            now = self._clock()
            unused = [one for one in self._known.values() if one.unused and one.id not in self._taken]
            failed = [one for one in unused if one.failed]
            spare = self._kept.surplus(one for one in unused if one.free)
            return failed + [
                one
                for one in spare
                if self._kept.none(one) or self._is_settled(one) or self._own_until.get(one.id, now) > now
            ]

    def delete_free(self, floating_id: str, name: str) -> None:
        """Delete one that is left over, unless somebody took it meanwhile. Raises CloudNotFound.

        Blocks; for `CLAIM_SECONDS`, too, if it is not this launcher's own.

        :param name: that it had when nobody used it.
        """
        with self._lock:
            if floating_id in self._taken:
                return
            self._taken.add(floating_id)
            known, own_until = self._known.get(floating_id), self._own_until.get(floating_id, float("-inf"))
            if known is not None and self._kept.none(known):
                own_until = float("inf")
        try:
            if known is not None and known.free and own_until <= self._clock():
                claim = self._claim(known._replace(name=name), lambda: None)
                self._client.pause(CLAIM_SECONDS)
                name, own_until = claim.floating.name, claim.ends_at
            self._client.delete_floating_ip(floating_id, lambda: self._check_unused(floating_id, name, own_until))
        except _Overtaken:
            log.debug("Provider %s: floating IP %s is used again, and stays", self._config.name, floating_id)
        finally:
            with self._lock:
                self._taken.discard(floating_id)
                # The next list tells.
                self._known.pop(floating_id, None)

    def _check_unused(self, floating_id: str, name: str, own_until: float) -> None:
        """May it be deleted? Blocks; raises _Overtaken, CloudNotFound."""
        found = self._client.floating_ip(floating_id)
        if not found.unused or found.name != name:
            raise _Overtaken
        if found.free and self._clock() >= own_until:
            raise _Overtaken


# `KeptAddresses`: how many free floating IPs pools keep (``floating-ip-pool``, IV-13). Pure functions.


class KeptAddresses:
    """Of one provider, as its configuration says."""

    def __init__(self, config: IbmProviderConfig) -> None:
        self._config = config

    def of(self, floating: IbmFloatingIp) -> int:
        """How many free ones of its pool are kept."""
        pool = self._config.pools.get(floating.metadata.get(POOL_KEY, ""))
        return pool.floating_ip_pool if pool is not None and pool.public_ipv4 else 0

    def none(self, floating: IbmFloatingIp) -> bool:
        """Does its pool delete each one? Then no launcher uses again what another one freed."""
        pool = self._config.pools.get(floating.metadata.get(POOL_KEY, ""))
        return pool is not None and pool.public_ipv4 and not pool.floating_ip_pool

    def surplus(self, free: Iterable[IbmFloatingIp]) -> list[IbmFloatingIp]:
        """Of free ones those that are more than their pools keep: of all launchers the same."""
        by_group: dict[str, list[IbmFloatingIp]] = {}
        for one in sorted(free, key=lambda one: (one.created, one.id)):
            by_group.setdefault(one.group, []).append(one)
        return [one for group in by_group.values() for one in group[self.of(group[0]) :]]


# `AddressShortages`: zones whose quota of floating IPs is used up (CM-6).

#: IBM tells no limits. So a refusal counts for so long, unless a floating IP of the zone becomes free before.
SHORT_SECONDS: Final = 60.0


class AddressShortages:
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the table."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Until when, and what IBM said.
        self._zones: dict[str, tuple[float, CloudQuota]] = {}

    def refused(self, zone: str, error: CloudQuota) -> None:
        """IBM made no more in a zone."""
        with self._lock:
            self._zones[zone] = self._clock() + SHORT_SECONDS, error

    def freed(self, zone: str) -> None:
        """A floating IP of a zone is free, or gone."""
        with self._lock:
            self._zones.pop(zone, None)

    def of(self, zone: str) -> CloudQuota | None:
        """Why no instance of a zone gets one now; None = it may."""
        with self._lock:
            until, error = self._zones.get(zone, (float("-inf"), None))
            return error if until > self._clock() else None
