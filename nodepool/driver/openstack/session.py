# SPDX-License-Identifier: Apache-2.0
"""openstacksdk's session as a plain HTTP client: login, catalog, version discovery, TLS settings; nothing more."""

from __future__ import annotations

import contextlib
import logging
import threading
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_texts import without_login
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.openstack.errors import ServiceAbsent
from nodepool.metrics.statsd import shared_client

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

#: Seconds for one call when clouds.yaml has no ``api_timeout``.
DEFAULT_TIMEOUT_SECONDS: Final = 60.0
#: How long the endpoint of a service is not looked up again in the catalog, which comes with a login.
ENDPOINT_SECONDS: Final = 60.0
#: Connections to one host that are kept.
POOL_SIZE: Final = 32


class HttpClient(Protocol):
    """What is used of a keystoneauth adapter."""

    def request(self, url: str, method: str, **arguments: Any) -> Any: ...


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
        self._places.__enter__()
        self._limiter.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._places.__exit__(kind, error, traceback)


def make_client(region: CloudRegion, service: str) -> HttpClient:
    """A keystoneauth adapter as openstacksdk sets it up, without the SDK's own layer around each call.

    Logs in. Raises ServiceAbsent, and what keystoneauth raises.
    """
    # It tells at each attempt what is in the exception, too, but not whose cloud it is about.
    chatter = logging.getLogger("keystoneauth.identity")
    if chatter.level == logging.NOTSET:
        chatter.setLevel(logging.ERROR)
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
    client: HttpClient = region.get_session_client(service, constructor=_client_class(service))
    return client


def _session_of(region: CloudRegion) -> Any:
    """keystoneauth's session of a region, with our limits and without what slows calls down."""
    from nodepool.driver.framework.http import bounded
    from nodepool.driver.framework.http.http_session import HttpSession
    from nodepool.driver.openstack.keystone_adapter import TLS_SETTINGS, KeystoneAdapter

    session = region.get_session()
    if session.timeout is None:
        session.timeout = DEFAULT_TIMEOUT_SECONDS
    if not isinstance(session.session, HttpSession):
        session.session = HttpSession(session.session)
    bounded.mount(session.session, POOL_SIZE, KeystoneAdapter, TLS_SETTINGS)
    return session


def _client_class(service: str) -> Any:
    """Class of a keystoneauth adapter, to be made by openstacksdk."""
    from keystoneauth1 import adapter
    from keystoneauth1.exceptions import DiscoveryFailure

    from nodepool.driver.openstack.quick_calls import VERSION_IN_PATH, QuickCalls

    class Client(adapter.Adapter):
        def __init__(self, session: Any, **given: Any) -> None:
            kept = {
                key: value for key, value in given.items() if not key.startswith(("statsd", "prometheus", "influx"))
            }
            # The SDK makes texts of numbers in clouds.yaml.
            rate, concurrency = float(kept.pop("rate_limit", None) or 0), int(kept.pop("concurrency", None) or 0)
            super().__init__(session, **kept)
            self._turns = ServiceLimits(service, rate, concurrency)
            #: Where the service is, and until when that is not looked up again.
            self._endpoint: tuple[str | None, float] = (None, 0.0)
            token = partial(session.get_auth_headers, self.auth)
            # Who wants calls to be repeated gets that from keystoneauth.
            repeats = self.connect_retries or self.status_code_retries
            self._quick = None if repeats else QuickCalls(token, self._turns, float(session.timeout))
            # `count` does that; the SDK has opened a socket for it in vain.
            unused = given.get("statsd_client")
            if unused is not None:
                unused.close()

        def request(self, url: str, method: str, **arguments: Any) -> Any:
            if self._quick is None:
                return self._long_way(url, method, arguments)
            answer = self._quick.call(method, url, arguments)
            if answer is not None:
                return answer
            response = self._long_way(url, method, arguments)
            self._quick.learn(url, response)
            return response

        def _long_way(self, url: str, method: str, arguments: dict[str, Any]) -> Any:
            if not self.endpoint_override:
                arguments["endpoint_override"] = self._known_endpoint()
            # At DEBUG keystoneauth would log user data, and the password in the answer to a creation.
            return super().request(url, method, log=False, rate_semaphore=self._turns, **arguments)

        def _known_endpoint(self) -> str | None:
            """keystoneauth goes through a copy of the whole catalog for it.

            A service that does not tell its versions just then has an endpoint without a version for keystoneauth.
            All calls there end with 404, and 404 means that a server or an image is gone. Such an endpoint is not used.

            :raises DiscoveryFailure: there is no other (O-21).
            """
            known, until = self._endpoint
            if known is not None and monotonic() < until:
                return known
            found = self.get_endpoint()
            if found is None:
                return None
            # Names in %() are filled in by keystoneauth.
            endpoint = str(found).replace("%", "%%")
            if VERSION_IN_PATH.search(endpoint) is None:
                if known is None:
                    raise DiscoveryFailure(f"the {service} service at {without_login(endpoint)} reports no version")
                return known
            self._endpoint = endpoint, monotonic() + ENDPOINT_SECONDS
            return endpoint

    return Client


def count(service: str, method: str, path: str, status: str, seconds: float) -> None:
    """The metrics that openstacksdk sends of its own calls: ``openstack.api.<service>.<method>.<operation>``."""
    client = shared_client()
    if client is None:
        return
    parts = [part for part in path.split("?")[0].split("/") if part]
    names = (
        parts if parts[-1:] == ["detail"] else [p[:-1] if i + 1 < len(parts) else p for i, p in enumerate(parts)][::2]
    )
    key = f"openstack.api.{service}.{method}.{'_'.join(names)}".replace(":", "_")
    with client.pipeline() as pipe:
        pipe.incr(f"{key}.attempted")
        pipe.incr(f"{key}.{status}")
        if status != "failed":
            pipe.timing(f"{key}.{status}", int(seconds * 1000))


def close(client: HttpClient) -> None:
    """Close the connections of a client that are not in use."""
    requests_session = getattr(getattr(client, "session", None), "session", None)
    if requests_session is not None:
        requests_session.close()
