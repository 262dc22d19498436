# SPDX-License-Identifier: Apache-2.0
"""`TokenLogin`: the bearer token of one provider, renewed before it ends; and how metadata services are asked."""

from __future__ import annotations

import abc
import logging
import os
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.rest_calls import PROXY, is_page

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

log = logging.getLogger("nodepool.driver.framework.TokenLogin")

#: A token is renewed so long before it ends, in seconds, or at half its life if that is later.
RENEW_SECONDS: Final = 300.0
#: After a refusal nobody asks again for so long: an account is locked for less.
REFUSED_SECONDS: Final = 10.0
#: Where a machine or a container asks for its own identity. The addresses are those of all clouds, and of Google in
#: IPv6 (GCE_METADATA_HOST in GoogleCloudPlatform/k8s-config-connector); of EC2 in IPv6; of ECS; of EKS; then the names
#: of Google and of IBM.
_METADATA_HOSTS: Final = (
    *("169.254.169.254", "fd20:ce::254", "fd00:ec2::254", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"),
    *("metadata.google.internal", "api.metadata.cloud.ibm.com"),
)
#: Variables by which google-auth and botocore find them elsewhere: a host, or an address.
_METADATA_VARIABLES: Final = (
    *("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
)
#: Statuses by which a metadata service says that it is not ready yet, or that the identity is not.
_NOT_READY: Final = (404, 410, 429)
#: What an operator reads then.
NOT_READY: Final = "the metadata service is asked again; if this lasts, assign an identity to this machine"


def keep_metadata_direct() -> None:
    """Keep calls of metadata services away from the proxies of the environment, whichever library makes them.

    A proxy would answer for itself: with an error, or with the identity of another machine. requests, urllib and
    botocore read ``no_proxy``, which gets the addresses. Without a proxy the environment stays as it is.
    """
    proxies = urllib.request.getproxies_environment()
    present = proxies.pop("no", "")
    if not proxies or present.strip() == "*":
        return
    known = {name.strip() for name in present.split(",")}
    # requests compares a host without brackets, urllib and botocore one with them.
    hosts = [form for host in _metadata_hosts() for form in ((host, f"[{host}]") if ":" in host else (host,))]
    if missing := [host for host in hosts if host not in known]:
        os.environ["no_proxy"] = ",".join(filter(None, [present, *missing]))


def _metadata_hosts() -> Iterator[str]:
    yield from _METADATA_HOSTS
    for name in _METADATA_VARIABLES:
        text = os.environ.get(name, "")
        host = urllib.parse.urlsplit(text if "://" in text else f"//{text}").hostname
        if host:
            yield host


def is_metadata(url: str) -> bool:
    """Is an address that of a metadata service?"""
    return urllib.parse.urlsplit(url).hostname in set(_metadata_hosts())


def is_away(answer: HttpAnswer, *, metadata: bool) -> bool:
    """Does an answer to a login say nothing about the credentials? Then the login is tried again.

    :param metadata: a metadata service answered.
    """
    status = answer.status
    return status == 429 or status >= 500 or is_page(answer) or (metadata and status in _NOT_READY)


def login_error(text: str, answer: HttpAnswer, code: str, remedy: str, *, metadata: bool) -> CloudAway:
    """The error for an answer to a login.

    :param text: whose login failed, and what the answer says.
    :param remedy: what corrects the credentials, such as ``correct credentials-file``.
    :param metadata: a metadata service answered.
    """
    if not is_away(answer, metadata=metadata):
        return LoginRefused(f"{text}; {remedy}", code)
    advice = PROXY if is_page(answer) else NOT_READY if metadata else ""
    return CloudAway("; ".join(filter(None, (text, advice))), maybe_done=False, code=code)


class TokenLogin(abc.ABC):
    """A `nodepool.driver.framework.http.rest_calls.RestLogin`; a driver says where its cloud's tokens come from.

    While no new token can be had, the present one is used on as long as it is valid. Thread-safe: ``_lock`` guards all;
    ``_asking`` is held while a token is asked for. Only those wait for it who have no valid token.

    :param provider: its name, for errors.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = monotonic) -> None:
        keep_metadata_direct()
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
