# SPDX-License-Identifier: Apache-2.0
"""`IbmFloatingIps`: floating IPs of nodes. IBM bills each for a whole month, so free ones are used again (IV-13).

A free one keeps the name of its last node. Whose it is now its binding says, and its name, which changes with the
binding in one call. Several launchers may take the same free one at the same moment, because a binding replaces the one
before, and the last call wins: IBM has no call that binds a floating IP only if it is free. So who takes one decides by
a list that is at most `CHOICE_SECONDS` old when the call is sent, and looks `CHECK_SECONDS` after its answer whether it
is still theirs. A launcher that is stopped between its decision and its call is what that does not cover. One that this
launcher has just freed is nobody else's for a while: others leave alone what has not been free for `SETTLED_SECONDS`.

IBM deletes a floating IP whatever it is bound to. So each deletion looks at it when the turn of the call has come.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc.errors import busy, exists
from nodepool.driver.ibmvpc.types import AVAILABLE, IbmFloatingIp
from nodepool.driver.statemachine.metadata import POOL_KEY, PROVIDER_KEY
from nodepool.exceptions import LaunchStatusException

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.client import IbmVpc
    from nodepool.driver.ibmvpc.config import IbmProviderConfig

log = logging.getLogger("nodepool.driver.ibmvpc.floating")

#: How old a list may be by which a free one is taken, when the call begins.
CHOICE_SECONDS: Final = 2.0
#: How long after its binding one may still be taken by another launcher: the call of that may be under way.
CHECK_SECONDS: Final = 2 * CHOICE_SECONDS
#: One that others freed is left alone for so long: a launcher of Nodepool 11.0.0 makes one before its instance.
SETTLED_SECONDS: Final = 120.0
#: One that this launcher freed is nobody else's for so long.
OWN_SECONDS: Final = SETTLED_SECONDS / 2
#: Attempts of a call that got no answer, and of choices that others were faster with.
ATTEMPTS: Final = 4


class Binding(NamedTuple):
    """A floating IP that is bound to an instance.

    :param check_at: look then whether it still is; None = nobody else could have taken it.
    """

    floating: IbmFloatingIp
    check_at: float | None


class _Choice(NamedTuple):
    """A free one to take.

    :param own: nobody else takes it now.
    """

    floating: IbmFloatingIp
    own: bool


class _Overtaken(Exception):
    """When the turn of a call came the floating IP was not free any more, or nobody knows in time."""


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
        #: Since when a free one is free, as far as it was seen.
        self._free_since: dict[str, float] = {}
        #: When this launcher freed one.
        self._freed_at: dict[str, float] = {}
        #: Those that a thread has chosen, or deletes.
        self._taken: set[str] = set()
        #: When the latest list began, and how long it took.
        self._listed_at = float("-inf")
        self._list_seconds = 0.0

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
            free = {floating.id for floating in self._known.values() if floating.free}
            self._free_since = {key: self._free_since.get(key, started) for key in free}
            self._freed_at = {key: when for key, when in self._freed_at.items() if key in free or when > started}
        return found

    # -- binding --

    def bind(self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None]) -> Binding:
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
                continue
            except CloudNotFound as error:
                # Somebody has deleted the one that was chosen.
                log.debug("Provider %s: %s", self._config.name, error)
            except CloudRefused as error:
                # Also of the interface: an order that was not answered has bound one.
                if not exists(error) and not busy(error):
                    raise
                log.debug("Provider %s: %s", self._config.name, error)
            except CloudAway as error:
                if not error.maybe_done:
                    raise
                # Whether it was done the next list says.
                log.debug("Provider %s: %s", self._config.name, error)
            self._list.clear()
        return self._make(name, group_id, interface_id, permit)

    def _bind(self, name: str, group_id: str, zone: str, interface_id: str, permit: Callable[[], None]) -> Binding:
        listed = self._list.get(CHOICE_SECONDS / 2)
        mine = next((one for one in listed if one.target == interface_id), None)
        if mine is not None:
            # By a call that was not answered.
            return Binding(self._working(mine), None)
        choice = self._choose(name, group_id, zone)
        if choice is None:
            return self._make(name, group_id, interface_id, permit)
        try:
            return self._take(choice, name, interface_id, permit)
        finally:
            with self._lock:
                self._taken.discard(choice.floating.id)

    def _choose(self, name: str, group_id: str, zone: str) -> _Choice | None:
        """A free one that nobody else takes, or only with bad luck; None = there is none."""
        with self._lock:
            now = self._clock()
            all_free = [one for one in self._known.values() if one.free and one.id not in self._taken]
            named = next((one for one in all_free if one.name == name), None)
            free = [one for one in all_free if (one.group_id, one.zone) == (group_id, zone)]
            own = [one for one in free if now - self._freed_at.get(one.id, float("-inf")) < OWN_SECONDS]
            # What was freed here is nobody's that makes one before its instance.
            settled = [
                one
                for one in free
                if one.id in self._freed_at or now - self._free_since.get(one.id, now) >= SETTLED_SECONDS
            ]
            if named is not None:
                # Of an order that was not answered, or of an attempt whose instance is gone.
                found = named
            elif own or settled:
                # Launchers shall not all choose the same one.
                found = random.choice(own or settled)
            else:
                return None
            self._taken.add(found.id)
            return _Choice(found, found in own)

    def _take(self, choice: _Choice, name: str, interface_id: str, permit: Callable[[], None]) -> Binding:
        floating_id = choice.floating.id

        def still_free() -> None:
            permit()
            found, seen_at = self._now(floating_id)
            if found is None or not found.free or self._clock() - seen_at > CHOICE_SECONDS:
                raise _Overtaken

        bound = self._client.bind_floating_ip(floating_id, name, interface_id, still_free)
        self._bound(bound)
        log.debug("Provider %s: floating IP %s is used again", self._config.name, bound.address)
        return Binding(self._working(bound), None if choice.own else self._clock() + CHECK_SECONDS)

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

    def _make(self, name: str, group_id: str, interface_id: str, permit: Callable[[], None]) -> Binding:
        made = self._client.create_floating_ip(name, group_id, interface_id, permit)
        self._bound(made)
        return Binding(self._working(made), None)

    def _working(self, floating: IbmFloatingIp) -> IbmFloatingIp:
        """The same. Raises LaunchStatusException if no node can use it."""
        if floating.failed:
            text = f"Provider {self._config.name}: floating IP {floating.address or floating.id} is {floating.status}"
            raise LaunchStatusException(text)
        return floating

    def _bound(self, floating: IbmFloatingIp) -> None:
        with self._lock:
            self._known[floating.id] = floating
            self._free_since.pop(floating.id, None)
            self._freed_at.pop(floating.id, None)

    def still_bound(self, binding: Binding, name: str) -> bool:
        """Is one still bound as it was? For when it is time for that. Blocks for a list."""
        wanted = (binding.floating.id, name, binding.floating.target)
        return any((one.id, one.name, one.target) == wanted for one in self._list.get_new())

    # -- what is free --

    def release(self, name: str) -> None:
        """The instance of a name is gone. Its floating IP is kept for another one, or deleted. Blocks."""
        with self._lock:
            found = next((one for one in self._known.values() if one.name == name), None)
        if found is None:
            found = next((one for one in self.all() if one.name == name), None)
        if found is None or self._keep(found):
            return
        try:
            self.delete_free(found.id, name)
        except CloudNotFound:
            log.debug("Floating IP %s is gone already", found.address)

    def _keep(self, floating: IbmFloatingIp) -> bool:
        """Is one that became free kept, or that of another node by now?"""
        with self._lock:
            now = self._clock()
            if floating.id in self._taken or self._known.get(floating.id, floating).name != floating.name:
                return True
            if floating.failed:
                self._known.pop(floating.id, None)
                return False
            self._known[floating.id] = floating._replace(target="", status=AVAILABLE)
            free = [one for one in self._known.values() if one.group == floating.group and one.free]
            if len(free) > self._bound_of(floating):
                self._known.pop(floating.id, None)
                return False
            self._freed_at[floating.id] = now
            self._free_since.setdefault(floating.id, now)
            return True

    def _bound_of(self, floating: IbmFloatingIp) -> int:
        """How many free ones of its pool are kept."""
        pool = self._config.pools.get(floating.metadata.get(POOL_KEY, ""))
        return pool.floating_ip_pool if pool is not None and pool.public_ipv4 else 0

    def left_over(self) -> list[IbmFloatingIp]:
        """Free ones of this provider that are more than its pools keep, and failed ones. Blocks for a list."""
        self.all()
        with self._lock:
            unused = [one for one in self._known.values() if one.unused and one.id not in self._taken]
        failed = [one for one in unused if one.failed]
        return failed + surplus((one for one in unused if one.free), self._bound_of)

    def delete_free(self, floating_id: str, name: str) -> None:
        """Delete one that is left over, unless somebody took it meanwhile. Blocks. Raises CloudNotFound.

        :param name: that it had when nobody used it.
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
            self._client.delete_floating_ip(floating_id, still_unused)
        except _Overtaken:
            log.debug("Provider %s: floating IP %s is used again, and stays", self._config.name, floating_id)
        finally:
            with self._lock:
                self._taken.discard(floating_id)
                # The next list tells.
                self._known.pop(floating_id, None)


def surplus(free: Iterable[IbmFloatingIp], kept: Callable[[IbmFloatingIp], int]) -> list[IbmFloatingIp]:
    """Of free ones those that are more than a pool keeps: of all launchers the same. Pure.

    :param kept: how many of the pool of one.
    """
    by_group: dict[str, list[IbmFloatingIp]] = {}
    for one in sorted(free, key=lambda one: (one.created, one.id)):
        by_group.setdefault(one.group, []).append(one)
    return [one for group in by_group.values() for one in group[kept(group[0]) :]]
