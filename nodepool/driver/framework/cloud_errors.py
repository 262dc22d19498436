# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a call to a cloud, named after what the launcher does next (reference/driver 13).

A driver maps the error codes of its cloud to these classes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchError,
    LaunchNodepoolException,
    LaunchStatusException,
    NotFound,
    QuotaException,
)


class CloudAway(CloudUnavailableException):
    """No answer, or one that says nothing: timeouts, broken connections, 5xx, too many requests.

    :param maybe_done: the cloud may have received the call and carried it out.
    """

    def __init__(self, text: str, maybe_done: bool = True, code: str = "") -> None:
        super().__init__(text)
        self.maybe_done = maybe_done
        self.code = code


class NotFoundByProxy(CloudAway):
    """404 from something before the cloud, such as a proxy: alone it says nothing of what was asked for."""


@contextlib.contextmanager
def nothing_sent() -> Iterator[None]:
    """A context for the calls before a creation, which only read: without an answer, nothing was made.

    :raises CloudAway: a call inside had no answer; ``maybe_done`` is False.
    """
    try:
        yield
    except CloudAway as error:
        if not error.maybe_done:
            raise
        raise CloudAway(str(error), maybe_done=False, code=error.code) from error


class LoginRefused(CloudAway):
    """The credentials are not valid, or not valid any more. Nothing was done."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text, maybe_done=False, code=code)


class CloudRefused(LaunchError):
    """The cloud understood a call and refused it. A failed attempt; the same call will not succeed.

    :param status: of HTTP; 0 = the refusal came in another way.
    :param said: the cloud's own words, without provider and call; "" = they are the whole text.
    :param code: the cloud's name of the error; "" = it has none.
    """

    def __init__(self, text: str, status: int = 0, said: str = "", code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.said = said or text
        self.code = code


class CloudNotFound(CloudRefused, NotFound):
    """The object of the call does not exist."""


class CloudSetup(CloudRefused, LaunchNodepoolException):
    """Something that the configuration names does not exist, or is not allowed."""

    statsd_key = LaunchNodepoolException.statsd_key


class CloudQuota(CloudRefused, QuotaException):
    """A quota is used up. The launch waits; it is no failed attempt."""

    statsd_key = QuotaException.statsd_key


class CloudNoCapacity(CloudRefused, CapacityException):
    """The cloud has no capacity in this place. Another zone or type may have some."""

    statsd_key = CapacityException.statsd_key


class CloudNoCapacityLater(LaunchStatusException, CapacityException):
    """The cloud accepted a creation, and found no capacity then, or took the capacity away during the launch."""

    statsd_key = CapacityException.statsd_key


# Texts of clouds, made fit for errors and the log. Pure.

#: Longest text of a cloud that goes into an error or the log.
MAX_TEXT: Final = 500
_LOGIN_IN_URL: Final = re.compile(r"://[^/\s@]{1,200}@")


def without_login(text: str) -> str:
    """Without line breaks, and without user and password in addresses."""
    return _LOGIN_IN_URL.sub("://", " ".join(text.split()))


def one_line(text: str) -> str:
    """Without line breaks, not too long, and without user and password in addresses."""
    line = without_login(text)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 3] + "..."
