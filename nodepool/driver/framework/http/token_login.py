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

    While no new token can be had, the present one is used on as long as it is valid. Thread-safe; ``_lock`` guards all,
    and is held while a token is asked for.

    :param provider: its name, for errors.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._token: str | None = None
        self._renew_at = float("-inf")
        self._ends_at = float("-inf")
        self._refused: LoginRefused | None = None
        self._refused_at = float("-inf")

    @abc.abstractmethod
    def ask(self) -> tuple[str, float]:
        """A new token, and for how many seconds it is valid. Blocks; one thread at a time.

        :raises CloudAway: there was no answer.
        :raises LoginRefused: the credentials are not valid, or there are none.
        """

    def headers(self) -> Mapping[str, str]:
        """See `RestLogin`."""
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._renew_at:
                self._renew(now)
            return {"Authorization": f"Bearer {self._token}"}

    def refused(self) -> None:
        """See `RestLogin`."""
        with self._lock:
            self._renew_at = float("-inf")
            self._ends_at = float("-inf")

    def _renew(self, now: float) -> None:
        """With the lock."""
        if self._refused is not None and now < self._refused_at + REFUSED_SECONDS:
            raise LoginRefused(str(self._refused), self._refused.code)
        try:
            self._token, life = self.ask()
        except LoginRefused as error:
            self._refused, self._refused_at = error, now
            raise
        except CloudAway as error:
            if now >= self._ends_at:
                raise
            # The old one is still valid.
            log.warning("%s; the present token is used on", error)
            self._renew_at = min(self._ends_at, now + REFUSED_SECONDS)
            return
        self._refused = None
        self._ends_at = now + life
        self._renew_at = now + max(life - RENEW_SECONDS, life / 2)
        log.debug("Provider %s: a token that is valid for %d s", self.provider, life)
