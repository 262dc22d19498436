# SPDX-License-Identifier: Apache-2.0
"""`Access`: who may log in, and what operators may do. Made from ``webapp.auth``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from anyio import CapacityLimiter

from nodepool.web.actions import Actions
from nodepool.web.pending_changes import PendingChanges
from nodepool.web.tokens import Tokens

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
    :param threads: in which tokens are checked: not those of pages, because an OpenID Connect provider may be slow.
    """

    tokens: Tokens
    actions: Actions
    require_login: bool = False
    origins: Sequence[str] = ()
    pending: PendingChanges | None = None
    threads: CapacityLimiter = field(default_factory=_threads)
