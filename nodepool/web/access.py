# SPDX-License-Identifier: Apache-2.0
"""`Access`: who may log in, and what operators may do. Made from ``webapp.auth``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from nodepool.web.actions import Actions
from nodepool.web.browser_login import BrowserLogin
from nodepool.web.pending_changes import PendingChanges
from nodepool.web.tokens import Tokens, User

#: Tokens are checked in so many threads at most.
THREADS: Final = 2


def _threads() -> CapacityLimiter:
    return CapacityLimiter(THREADS)


@dataclass(frozen=True)
class Access:
    """Of a site with ``webapp.auth.authenticators``.

    :param require_login: nobody sees anything who has not logged in.
    :param origins: addresses of the pages as browsers see them, beside that of the request.
    :param pending: changes that wait for the lock of a node.
    :param browser_logins: providers at which a browser can log in, by the names of their authenticators.
    :param login_threads: for these, because such a provider may be slow, and tokens are to be checked meanwhile.
    :param threads: in which tokens are checked that need no provider: not those of pages.
    :param provider_threads: for the others: anybody may send tokens for which a provider that hangs is asked.
    """

    tokens: Tokens
    actions: Actions
    require_login: bool = False
    origins: Sequence[str] = ()
    pending: PendingChanges | None = None
    browser_logins: Mapping[str, BrowserLogin] = field(default_factory=dict)
    login_threads: CapacityLimiter = field(default_factory=_threads)
    threads: CapacityLimiter = field(default_factory=_threads)
    provider_threads: CapacityLimiter = field(default_factory=_threads)

    async def user(self, token: str) -> User:
        """Who a token is of. Raises BadTokenError."""
        threads = self.provider_threads if self.tokens.may_ask_provider(token) else self.threads
        return await run_sync(self.tokens.user, token, limiter=threads)
