# SPDX-License-Identifier: Apache-2.0
"""`TokenLogin`: the bearer token of one provider, renewed before it ends."""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused

log = logging.getLogger("nodepool.driver.framework.TokenLogin")

#: A token is renewed so long before it ends, in seconds, or at half its life if that is later.
RENEW_SECONDS: Final = 300.0
#: After a refusal nobody asks again for so long: an account is locked for less.
REFUSED_SECONDS: Final = 10.0


class TokenLogin(abc.ABC):
    """A `nodepool.driver.framework.http.rest_calls.RestLogin`; a driver says where its cloud's tokens come from.

    While no new token can be had, the present one is used on as long as it is valid. Thread-safe: ``_lock`` guards all;
    ``_asking`` is held while a token is asked for. Only those wait for it who have no valid token.

    :param provider: its name, for errors.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._token: str | None = None
        self._renew_at = float("-inf")
        self._ends_at = float("-inf")
        self._refused: LoginRefused | None = None
        self._refused_at = float("-inf")
        self._away: CloudAway | None = None
        #: When the latest call ended that had no answer.
        self._away_at = float("-inf")

    @abc.abstractmethod
    def ask(self) -> tuple[str, float]:
        """A new token, and for how many seconds it is valid. Blocks; one thread at a time.

        :raises CloudAway: there was no answer.
        :raises LoginRefused: the credentials are not valid, or there are none.
        """

    def headers(self) -> Mapping[str, str]:
        """See `RestLogin`."""
        with self._lock:
            now, present = self._clock(), self._as_headers()
            if now < self._renew_at:
                return present
            valid = now < self._ends_at
        if not self._asking.acquire(blocking=not valid):
            return present
        try:
            return self._renewed(now)
        finally:
            self._asking.release()

    def refused(self, headers: Mapping[str, str]) -> None:
        """See `RestLogin`. Of many calls with the same token only the first one makes it be renewed."""
        with self._lock:
            if headers == self._as_headers():
                self._renew_at = self._ends_at = float("-inf")

    def _as_headers(self) -> dict[str, str]:
        """With the lock."""
        return {"Authorization": f"Bearer {self._token}"}

    def _renewed(self, since: float) -> Mapping[str, str]:
        """Only one thread at a time.

        :param since: when the caller began to wait. Of those who waited for a call without an answer nobody makes
            another one: each would take as long.
        """
        with self._lock:
            now = self._clock()
            valid = now < self._ends_at
            if now < self._renew_at:
                # Another thread was quicker.
                return self._as_headers()
            if not valid and self._refused is not None and now < self._refused_at + REFUSED_SECONDS:
                raise LoginRefused(str(self._refused), self._refused.code)
            if not valid and self._away is not None and since < self._away_at:
                raise CloudAway(str(self._away), maybe_done=False, code=self._away.code)
        try:
            token, life = self.ask()
        except (LoginRefused, CloudAway) as error:
            with self._lock:
                if isinstance(error, LoginRefused):
                    self._refused, self._refused_at = error, now
                else:
                    self._away, self._away_at = error, self._clock()
                if not valid:
                    raise
                self._renew_at = min(self._ends_at, now + REFUSED_SECONDS)
            log.warning("%s; the present token is used on", error)
        else:
            with self._lock:
                self._token, self._refused = token, None
                self._ends_at = now + life
                self._renew_at = now + max(life - RENEW_SECONDS, life / 2)
            log.debug("Provider %s: a token that is valid for %d s", self.provider, life)
        with self._lock:
            return self._as_headers()
