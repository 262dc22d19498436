# SPDX-License-Identifier: Apache-2.0
"""How calls to one service of OpenStack are made. It needs keystoneauth: import it with a session.

First names of calls, and limits of clouds.yaml, then `ServiceClient`, then keystoneauth's adapter with bounds.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from keystoneauth1 import adapter, exceptions
from keystoneauth1.discover import get_version_data
from keystoneauth1.exceptions import DiscoveryFailure, HTTPClientError
from keystoneauth1.session import TCPKeepAliveAdapter
from urllib3.exceptions import HTTPError, ReadTimeoutError

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import without_login
from nodepool.driver.framework.http.plain_http import BoundedAdapter, HttpAnswer, exchange
from nodepool.driver.framework.rate import RateLimiter, held_up
from nodepool.driver.openstack.clouds import VERSION_IN_PATH


def operation_name(path: str) -> str:
    """What openstacksdk calls a call in metrics, e.g. ``server`` for ``/servers/42``.

    :param path: below the endpoint.
    """
    parts = [part for part in path.partition("?")[0].split("/") if part]
    if parts[-1:] == ["detail"]:
        return "_".join(parts)
    # A name that an id follows is in the singular.
    return "_".join(
        part[:-1] if parts[place + 1 :] and part[-1] == "s" and not part.endswith("is") else part
        for place, part in enumerate(parts)
        if place % 2 == 0
    )


class ServiceLimits:
    """``rate_limit`` and ``concurrency`` of a service in clouds.yaml; a call is made within it.

    In place of keystoneauth's own, which goes by the wall clock: set back by ten minutes, it makes each call sleep for
    ten minutes, also without any limit.

    :param rate: calls per second that may begin; 0 = any number.
    :param concurrency: calls at once; 0 = any number.
    """

    def __init__(self, service: str, rate: float, concurrency: int) -> None:
        self._limiter = RateLimiter(service, rate)
        self._places = threading.BoundedSemaphore(concurrency) if concurrency else contextlib.nullcontext()

    def __enter__(self) -> None:
        """Blocks until it is our turn."""
        with held_up():
            self._places.__enter__()
        self._limiter.wait()

    def __exit__(self, *error: Any) -> None:
        self._places.__exit__(*error)


# keystoneauth and requests find out anew for each call what has not changed since the last one: the endpoint, the
# versions, the headers, proxies, certificates. That costs three times as much as the call (ADR 22).

#: So long calls are made as the last one of keystoneauth, in seconds. Then it finds everything out again.
USUAL_SECONDS: Final = 60.0
#: Arguments of a usual call.
_USUAL: Final = frozenset({"json", "params", "raise_exc"})
#: Headers that are made for each call.
_OF_THE_CALL: Final = frozenset(
    {"x-auth-token", "content-type", "content-length", "accept-encoding", "host", "transfer-encoding"}
)


class _LastCall(NamedTuple):
    """What the last call of keystoneauth had.

    :param connections: a pool of urllib3.
    :param url: of the endpoint. ``until``: monotonic seconds.
    """

    connections: Any
    url: str
    headers: Mapping[str, str]
    until: float


class ServiceClient(adapter.Adapter):
    """A keystoneauth adapter, to be made by openstacksdk.

    A usual call is made with what the last successful one of keystoneauth had, over a connection that is kept, with the
    token that keystoneauth has by now. What is not as usual takes the way of keystoneauth, which also logs in anew,
    follows redirections and repeats.

    :param service: for which it is, in the words of `nodepool.driver.openstack.api`.
    :param session: of keystoneauth.
    :param given: what openstacksdk wants of it.
    """

    def __init__(self, service: str, *, session: Any, **given: Any) -> None:
        kept = {key: value for key, value in given.items() if not key.startswith(("statsd", "prometheus", "influx"))}
        #: Where calls are counted, as openstacksdk counts them; None = nowhere.
        self._statsd, self._prefix = given.get("statsd_client"), str(given.get("statsd_prefix"))
        # The SDK makes texts of numbers in clouds.yaml.
        rate, concurrency = float(kept.pop("rate_limit", None) or 0), int(kept.pop("concurrency", None) or 0)
        super().__init__(session, **kept)
        self.service = service
        self._turns = ServiceLimits(service, rate, concurrency)
        #: Where the service was found last.
        self._endpoint: str | None = None
        #: For each wait.
        self._seconds = float(session.timeout)
        #: Replaced as a whole, so that no lock is needed; None = keystoneauth makes the next call.
        self._last: _LastCall | None = None

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.session.session.close()
        if self._statsd is not None:
            self._statsd.close()

    def request(self, url: str, method: str, **arguments: Any) -> Any:
        """As that of keystoneauth, counted. Blocks until it is our turn, and for the call."""
        started, status = monotonic(), "failed"
        # Who wants calls to be repeated gets that from keystoneauth.
        repeats = self.connect_retries or self.status_code_retries
        usual = arguments.keys() <= _USUAL and arguments.get("raise_exc") is False and not repeats
        try:
            response = self._as_the_last(url, method, arguments) if usual else None
            if response is None:
                response = self._long_way(url, method, arguments)
                if usual:
                    self._learn(url, response)
            status = str(response.status_code)
            return response
        finally:
            if self._statsd is not None:
                # A metric must not take the place of the answer.
                with contextlib.suppress(Exception):
                    self._count(self._statsd, method, url, status, monotonic() - started)

    def _count(self, client: Any, method: str, path: str, status: str, seconds: float) -> None:
        """Count one call: ``<prefix>.<service>.<method>.<operation>``.

        :param status: of HTTP, or ``failed``: there was no answer.
        """
        names = (
            name.replace(".", "_").replace(":", "_") for name in (str(self.service_type), method, operation_name(path))
        )
        place = ".".join((self._prefix, *names))
        with client.pipeline() as pipe:
            if status != "failed":
                pipe.timing(f"{place}.{status}", int(seconds * 1000))
                if seconds > 1:
                    pipe.incr(f"{place}.over_1000")
            pipe.incr(f"{place}.{status}")
            pipe.incr(f"{place}.attempted")

    def _as_the_last(self, path: str, method: str, arguments: Mapping[str, Any]) -> HttpAnswer | None:
        """Make a usual call; blocks. None = nothing was done that counts: keystoneauth is to make it.

        :raises keystoneauth1.exceptions.ClientException: as it would raise, e.g. ConnectFailure.
        """
        last = self._last
        if last is None or monotonic() >= last.until:
            return None
        headers, content = {**last.headers, **(self.session.get_auth_headers(self.auth) or {})}, None
        if arguments.get("json") is not None:
            try:
                content = json.dumps(arguments["json"]).encode()
            except (TypeError, ValueError):
                # keystoneauth writes more kinds of values.
                return None
            headers["Content-Type"] = "application/json"
        query = urllib.parse.urlencode(arguments.get("params") or {}, doseq=True)
        url = f"{last.url}{path}?{query}" if query else f"{last.url}{path}"
        try:
            with self._turns:
                place = urllib.parse.urlsplit(url)._replace(scheme="", netloc="").geturl()
                answer: HttpAnswer | None = exchange(last.connections, method, place, headers, content, self._seconds)
        except ReadTimeoutError as error:
            raise exceptions.ConnectTimeout(f"Request to {url} timed out") from error
        except (HTTPError, OSError) as error:
            text = f"Unable to establish connection to {url}: {type(error).__name__}: {error}"
            raise exceptions.ConnectFailure(text) from error
        if answer is not None and (300 <= answer.status_code < 400 or answer.status_code == 401):
            # Elsewhere, or with another token. Nothing was done.
            self._last = answer = None
        elif answer is not None and "Set-Cookie" in answer.headers:
            # requests keeps cookies.
            self._last = None
        return answer

    def _learn(self, path: str, response: Any) -> None:
        """keystoneauth has made a usual call. :param path: as it was given, below the endpoint."""
        request = response.request
        url = (request.url or "").partition("?")[0]
        # A load balancer's cookies change.
        cookies = "Set-Cookie" in response.headers or "Cookie" in request.headers
        if response.kept is None or not 200 <= response.status_code < 300 or cookies or not url.endswith(path):
            return
        endpoint = url.removesuffix(path)
        # Without a version the service was not found properly.
        if VERSION_IN_PATH.search(urllib.parse.urlsplit(endpoint).path) is not None:
            kept = {name: _text(value) for name, value in request.headers.items() if name.lower() not in _OF_THE_CALL}
            self._last = _LastCall(response.kept, endpoint, kept, monotonic() + USUAL_SECONDS)

    def _long_way(self, url: str, method: str, arguments: dict[str, Any]) -> Any:
        if not self.endpoint_override:
            arguments = {**arguments, "endpoint_override": self._known_endpoint()}
        # At DEBUG keystoneauth would log user data, and the password in the answer to a creation.
        return super().request(url, method, log=False, rate_semaphore=self._turns, **arguments)

    def _known_endpoint(self) -> str | None:
        """Where the service is, as its catalog and its versions say.

        A service that does not tell its versions just then has an endpoint without a version for keystoneauth.
        All calls there end with 404, and 404 means that a server or an image is deleted. Such an endpoint is not used.

        :raises DiscoveryFailure: there is no other (O-21).
        :raises keystoneauth1.exceptions.ClientException: why there is none, e.g. the service answers 503.
        """
        found = self.get_endpoint()
        if found is None:
            return None
        if VERSION_IN_PATH.search(str(found)) is not None:
            # Names in %() are filled in by keystoneauth.
            self._endpoint = str(found).replace("%", "%%")
        elif self._endpoint is None:
            # keystoneauth does not say why. Of 4xx it is the address that is wrong, not the login.
            with contextlib.suppress(HTTPClientError):
                get_version_data(self.session, str(found))
            raise DiscoveryFailure(f"the {self.service} service at {without_login(str(found))} reports no version")
        return self._endpoint


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


# `KeystoneAdapter`: keystoneauth's adapter for requests, with bounded answers.
#
# Imported when a cloud is used: keystoneauth comes with openstacksdk.

#: Settings of keystoneauth's adapter that are kept.
TLS_SETTINGS: Final = ("tls_ciphers", "tls_min_version")


class KeystoneAdapter(BoundedAdapter, TCPKeepAliveAdapter):
    """Login and discovery of keystoneauth are bounded, too."""
