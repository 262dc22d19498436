# SPDX-License-Identifier: Apache-2.0
"""One call to one service: pace (O-14), plain JSON, and errors that can be distinguished.

SDK objects are left out on purpose: to make one of each server in each list costs more than all the rest of a launch.
After the call comes the session of openstacksdk as an HTTP client, then what can go wrong.
"""

from __future__ import annotations

import html
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool import fast_json
from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import (
    MAX_TEXT,
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    LoginRefused,
    NotFoundByProxy,
    asks_for_a_pause,
    no_answer,
    one_line,
    retry_after,
    without_login,
)
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.rate import BucketSize, RateClasses
from nodepool.guard import OnError

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

log = logging.getLogger("nodepool.driver.openstack.transport")

#: Attempts of a call that the cloud puts off (429).
BUSY_ATTEMPTS: Final = 6
#: After how many seconds a service that was absent is looked for again.
LOOK_AGAIN_SECONDS: Final = 300.0
#: Without this one nothing works at all.
NEEDED_SERVICE: Final = "compute"
#: Whose exceptions come from the network.
_LIBRARIES: Final = ("keystoneauth1", "openstack", "requests", "urllib3")
#: Exceptions of a connection that was not there, or broke.
_CONNECT_ERRORS: Final = ("ConnectFailure", "ConnectTimeout", "UnknownConnectionError", "SSLError", "ConnectionError")
#: In what an exception of requests says when the call never left this machine.
_NOT_SENT: Final = ("NewConnectionError", "NameResolutionError", "Connection refused", "Failed to establish")


class Transport:
    """Calls of one provider. Thread-safe; all calls block.

    ``_lock`` guards the clients; it is not held during a call.

    :param provider: name, for errors.
    :param region: of `nodepool.driver.openstack.clouds.Clouds`.
    :param interval: seconds between the beginnings of two calls to the same service (O-14); 0 = only the answers of the
        cloud set the pace.
    :param make_client: for tests.
    :param renew: given a region, returns the one that clouds.yaml has in its place by now, or None if they are equal.
    """

    def __init__(
        self,
        provider: str,
        region: CloudRegion | Any,
        interval: float,
        make_client: Callable[[Any, str], Any] | None = None,
        renew: Callable[[Any], Any] = lambda region: None,
    ) -> None:
        self.provider = provider
        self.region = region
        self._renew = renew
        self.stopped = threading.Event()
        self._make_client = make_client or make_http_client
        # Without a burst: ``rate`` is a distance, and a service of OpenStack is seldom more than a few processes.
        size = BucketSize(burst=1, rate=1 / interval if interval > 0 else 0)
        self._classes = RateClasses({}, size, self._sleep)
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._there: dict[str, Fact[bool]] = {}

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin. Those under way may end."""
        self.stopped.set()
        self._drop_clients()

    def _drop_clients(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
            self._there.clear()
        for client in clients:
            client.close()

    # -- services --

    def _look_at_clouds_yaml(self, error: BaseException) -> None:
        """The cloud cannot be used. If clouds.yaml says something else by now, the next call goes by that.

        So a provider that was replaced, because its password was changed, can finish what it began.
        """
        region = self._renew(self.region) if isinstance(error, CloudAway) else None
        if region is None:
            return
        log.info("Provider %s: clouds.yaml has changed, trying the new settings", self.provider)
        self.region = region
        self._drop_clients()

    def has(self, service: str) -> bool:
        """Has the catalog this service? Asks the cloud the first time; an absent one is looked for again after a while.

        :raises CloudAway: that cannot be found out.
        """
        with self._lock:
            known = self._there.setdefault(service, Fact(lambda: self._is_there(service)))
        with OnError(self._look_at_clouds_yaml):
            return known.get(LOOK_AGAIN_SECONDS)

    def _is_there(self, service: str) -> bool:
        try:
            self._guarded(f"looking for the {service} service", service, lambda: self._client(service))
        except ServiceAbsent:
            log.info("Provider %s: the cloud has no %s service", self.provider, service)
            return False
        return True

    def _client(self, service: str) -> Any:
        with self._lock:
            client = self._clients.get(service)
        if client is None:
            client = self._make_client(self.region, service)
            with self._lock:
                client = self._clients.setdefault(service, client)
        return client

    # -- calls --

    def call(
        self,
        service: str,
        method: str,
        path: str,
        what: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> Any:
        """Make one call; returns what is in the answer, {} = nothing. One that the cloud puts off is made again later.

        :param service: official type, e.g. ``compute``.
        :param path: below the endpoint, e.g. ``/servers/detail``.
        :param what: for errors, e.g. ``listing servers``.
        :param body: sent as JSON.
        :param arguments: more for the session's ``request``.
        :param permit: asked when its turn has come, each time; raises an error if the call is not to be made any more.
        :raises CloudRefused: 4xx.
        :raises CloudAway: no answer, 5xx, or an answer that is not JSON.
        :raises ServiceAbsent: there is no such service. One without `NEEDED_SERVICE` is no cloud: CloudAway.
        """
        given = dict(arguments or {})
        if body is not None:
            given["json"] = body
        if query:
            given["params"] = dict(query)
        with OnError(self._look_at_clouds_yaml):
            for _ in range(BUSY_ATTEMPTS):
                if self.stopped.is_set():
                    raise CloudAway(
                        f"Provider {self.provider}: {what} failed: the provider was stopped", maybe_done=False
                    )
                call = self._classes.wait(service)
                permit()
                response = self._guarded(what, service, lambda: self._request(service, method, path, given))
                status: int = response.status_code
                if not asks_for_a_pause(status, response.headers):
                    call.worked()
                    break
                seconds = call.throttled(retry_after(response.headers))
                text = "Provider %s: %s is put off by the cloud, no calls to the %s service for %.1f s"
                log.info(text, self.provider, what, service, seconds)
                if status == 503:
                    # The service may be away for long: that is the matter of the caller.
                    break
            if status < 400:
                return self._content(response, what)
            raise self._error(response, what)

    def _request(self, service: str, method: str, path: str, given: dict[str, Any]) -> Any:
        started = monotonic()
        status = "failed"
        try:
            response = self._client(service).request(path, method, raise_exc=False, **given)
            status = str(response.status_code)
            return response
        finally:
            seconds = monotonic() - started
            log.debug("Provider %s: %s %s %s: %s in %.3f s", self.provider, service, method, path, status, seconds)

    def _guarded(self, what: str, service: str, call: Callable[[], Any]) -> Any:
        """Translate what keystoneauth raises."""
        try:
            return call()
        except ServiceAbsent as error:
            raise self._absent(service, what, str(error)) from error
        except Exception as error:
            # Plug-ins of keystoneauth have errors of their own.
            raise self._translated(error, what, service) from error

    def _absent(self, service: str, what: str, text: str) -> Exception:
        head = f"Provider {self.provider}: {what} failed: the cloud has no {service} service for us: {text}"
        if service != NEEDED_SERVICE:
            return ServiceAbsent(head)
        advice = "check region-name, and auth_url, project, region_name and interface of the cloud in clouds.yaml"
        return CloudAway(f"{head}; {advice}", maybe_done=False)

    def _translated(self, error: Exception, what: str, service: str) -> Exception:
        kind = type(error).__name__
        text = one_line(str(error)) or kind
        head = f"Provider {self.provider}: {what} failed"
        status = getattr(error, "http_status", None)
        if isinstance(status, int) and 400 <= status < 500 and status != 429:
            # Services do not make exceptions, see `_request`: this is about the token.
            advice = "check auth_url, user, password (is it expired?) and project of the cloud in clouds.yaml"
            return LoginRefused(f"{head}: the cloud refuses the login: {text}; {advice}")
        if kind in ("EndpointNotFound", "EmptyCatalog", "ServiceDisabledException"):
            return self._absent(service, what, text)
        unreached = no_answer(without_login(str(error)))
        if kind in _CONNECT_ERRORS or (unreached is not None and kind == "DiscoveryFailure"):
            maybe_done = kind in _CONNECT_ERRORS and not any(sign in text for sign in _NOT_SENT)
            advice = "; check auth_url in clouds.yaml and the catalog, and whether the service runs"
            return CloudAway(f"{head}: {unreached}{advice}" if unreached else f"{head}: {text}", maybe_done=maybe_done)
        if isinstance(status, int):
            # Of the login, or of the versions of a service.
            said = _said(getattr(error, "response", None)) or text
            return CloudAway(f"{head}: {status} {said}", maybe_done=status != 429)
        if kind in ("DiscoveryFailure", "InvalidResponse", "JSONDecodeError", "VersionNotAvailable") or _odd(error):
            advice = "check auth_url and the endpoints: is it a web page or a proxy that answers there?"
            return CloudAway(f"{head}: the answer cannot be understood: {text}; {advice}", maybe_done=False)
        if type(error).__module__.partition(".")[0] in _LIBRARIES:
            return CloudAway(f"{head}: {kind}: {text}")
        return error

    def _content(self, response: Any, what: str) -> Any:
        if response.status_code == 204 or not response.content:
            return {}
        try:
            return fast_json.loads_any(response.content)
        except (ValueError, RecursionError):
            said = message_of(response.content, response.headers.get("Content-Type", ""))
            raise CloudAway(
                f"Provider {self.provider}: {what} failed: the answer is not JSON but {said[:120]!r}; "
                "check the endpoints in clouds.yaml: is it a web page or a proxy that answers there?"
            ) from None

    def _error(self, response: Any, what: str) -> Exception:
        status: int = response.status_code
        said = _said(response)
        head = f"Provider {self.provider}: {what} failed"
        if status == 401:
            return LoginRefused(f"{head}: {status} {said}; check the credentials of the cloud in clouds.yaml")
        if status >= 500 or status == 429:
            return CloudAway(f"{head}: {status} {said}", maybe_done=status != 429)
        if status == 404 and is_of_a_proxy(
            response.content or b"", response.headers.get("Content-Type", ""), response.headers
        ):
            # It says nothing of a server or an image.
            advice = "it is the page of a proxy or web server before the service"
            return NotFoundByProxy(f"{head}: {status} {said}; {advice}", maybe_done=False)
        return refusal(head, said, status)

    # -- pace --

    def _sleep(self, seconds: float) -> None:
        if self.stopped.wait(seconds):
            raise CloudAway(f"Provider {self.provider}: the provider was stopped", maybe_done=False)


def _said(response: Any) -> str:
    """What an error answer says, with the id under which the cloud has logged it; "" = there is no answer."""
    if response is None:
        return ""
    said = message_of(response.content or b"", response.headers.get("Content-Type", ""))
    request_id = response.headers.get("x-openstack-request-id")
    return f"{said} ({request_id})" if request_id else said


def _odd(error: Exception) -> bool:
    """Did keystoneauth stumble over an answer that it did not expect?"""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    inside = trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("keystoneauth1.")
    return inside and isinstance(error, (LookupError, TypeError, AttributeError, ValueError))


# openstacksdk's session as a plain HTTP client: login, catalog, version discovery, TLS settings; nothing more.

#: Seconds for one call when clouds.yaml has no ``api_timeout``.
DEFAULT_TIMEOUT_SECONDS: Final = 60.0
#: Connections to one host that are kept.
POOL_SIZE: Final = 32


def make_http_client(region: CloudRegion, service: str) -> Any:
    """A keystoneauth adapter as openstacksdk sets it up, without the SDK's own layer around each call.

    Logs in. Raises ServiceAbsent, and what keystoneauth raises.
    """
    from nodepool.driver.openstack.service_client import ServiceClient

    # It tells at each attempt what is in the exception, too, but not whose cloud it is about.
    chatter = logging.getLogger("keystoneauth.identity")
    if chatter.level == logging.NOTSET:
        chatter.setLevel(logging.ERROR)
    if not region.has_service(service):
        raise ServiceAbsent(f"clouds.yaml says has_{service.replace('-', '_')}: false")
    session = _session_of(region)
    if not region.get_endpoint(service):
        found = session.get_endpoint(
            service_type=region.get_service_type(service),
            service_name=region.get_service_name(service),
            interface=region.get_interface(service),
            region_name=region.get_region_name(service),
        )
        if found is None:
            raise ServiceAbsent(f"the cloud {region.name} has no {service} service in this region")
    make: Any = partial(ServiceClient, service)
    return region.get_session_client(service, constructor=make)


def _session_of(region: CloudRegion) -> Any:
    """keystoneauth's session of a region, with our limits and without what slows calls down."""
    from nodepool.driver.framework.http import plain_http
    from nodepool.driver.openstack.service_client import TLS_SETTINGS, KeystoneAdapter

    session = region.get_session()
    if session.timeout is None:
        session.timeout = DEFAULT_TIMEOUT_SECONDS
    plain_http.mount(session.session, POOL_SIZE, KeystoneAdapter, TLS_SETTINGS)
    return session


# What can go wrong in a call, in the words of `nodepool.exceptions` (reference/driver 13).

#: Of a page of WebOb, which Glance answers with: its title tells the status only.
_WEBOB_REASON: Final = re.compile(r"</h1>((?:[^<]|<br ?/>)*<br ?/>\s*<br ?/>(?:[^<]|<br ?/>)*)")
#: Statuses with which services refuse something as over quota, if the text says so too.
_QUOTA_STATUSES: Final = frozenset({400, 403, 409, 413})
#: Of oslo.limit, which Keystone's limits are checked with. What begins with "server_" limits one call, not the project.
_OVER_LIMIT: Final = re.compile(r"resource (?!server_)\S+ is over limit of")


class ServiceAbsent(CloudRefused):
    """The catalog of the cloud has no such service."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 404)


def is_quota_text(text: str) -> bool:
    """Does an error or fault of the cloud say that a quota is used up? (O-3)"""
    lower = text.lower()
    return (
        "quota exceeded" in lower
        or "over quota" in lower
        or _OVER_LIMIT.search(lower) is not None
        or ("exceed" in lower and "quota" in lower)
        or "number of ports exceeded" in lower
        or "maximum number of ports" in lower
    )


def refusal(head: str, said: str, status: int) -> CloudRefused:
    """The exception for a 4xx answer.

    :param head: whose call it was, and which.
    :param said: the cloud's own words.
    """
    kind = CloudRefused
    if status == 404:
        kind = CloudNotFound
    elif status in _QUOTA_STATUSES and is_quota_text(said):
        kind = CloudQuota
    return kind(f"{head}: {status} {said}", status, f"{status} {said}")


def is_of_a_proxy(body: bytes, content_type: str, headers: Mapping[str, str]) -> bool:
    """Is an error answer a page of something between us and the service? Only then nothing of it is the service's."""
    page = "html" in content_type or body.lstrip()[:1] == b"<"
    # Each service has the first, of oslo.middleware; those without it write pages with WebOb.
    known = "x-openstack-request-id" in headers or "x-compute-request-id" in headers
    return page and not known and _WEBOB_REASON.search(body[: 64 * MAX_TEXT].decode("utf-8", "replace")) is None


def message_of(body: bytes, content_type: str) -> str:
    """What an error answer says, in one line; tolerates everything.

    :param body: JSON in one of the forms of the services, HTML, or text.
    """
    text = body[: 64 * MAX_TEXT].decode("utf-8", "replace")
    if "json" in content_type or text.lstrip().startswith("{"):
        try:
            found = _message(json.loads(text))
        except (ValueError, RecursionError):
            found = None
        if found:
            return one_line(found)
    if "html" in content_type or text.lstrip()[:1] == "<":
        title = re.search(r"<(title|h1)[^>]*>(.*?)</\1", text, re.IGNORECASE | re.DOTALL)
        reason = _WEBOB_REASON.search(text)
        for part in (reason and reason[1], title and title[2], text):
            told = html.unescape(re.sub(r"<[^>]*>", " ", part or ""))
            if told.strip():
                return one_line(told)
        return ""
    return one_line(text)


def _message(data: Any) -> str | None:
    """Nova: ``{kind: {message}}``; Neutron: ``{NeutronError: {message}}`` or a text; Keystone: ``{error: ...}``."""
    if isinstance(data, str):
        # Glance has the page of WebOb in it.
        return re.sub(r"(<br ?/>|\s)+", " ", data)
    if isinstance(data, list):
        return "; ".join(text for text in map(_message, data) if text)
    if not isinstance(data, dict):
        return None
    for key in ("message", "faultstring", "NeutronError", "error", "errors", "detail"):
        found = _message(data.get(key))
        if found:
            return found
    return next((text for text in map(_message, data.values()) if text), None)
