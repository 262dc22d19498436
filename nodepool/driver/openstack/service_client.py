# SPDX-License-Identifier: Apache-2.0
"""`ServiceClient`: how calls to one service of OpenStack are made. It needs keystoneauth: import it with a session."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Final

from keystoneauth1 import adapter
from keystoneauth1.exceptions import DiscoveryFailure

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_texts import without_login
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.openstack.quick_calls import VERSION_IN_PATH, QuickCalls

#: How long the endpoint of a service is not looked up again in the catalog, which comes with a login.
ENDPOINT_SECONDS: Final = 60.0


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


class ServiceClient(adapter.Adapter):
    """A keystoneauth adapter, to be made by openstacksdk. See `client_class`.

    :param session: of keystoneauth.
    :param given: what openstacksdk wants of it.
    """

    #: For which it is, in the words of `nodepool.driver.openstack.api`.
    service: ClassVar[str]

    def __init__(self, session: Any, **given: Any) -> None:
        kept = {key: value for key, value in given.items() if not key.startswith(("statsd", "prometheus", "influx"))}
        # The SDK makes texts of numbers in clouds.yaml.
        rate, concurrency = float(kept.pop("rate_limit", None) or 0), int(kept.pop("concurrency", None) or 0)
        super().__init__(session, **kept)
        self._turns = ServiceLimits(self.service, rate, concurrency)
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
        """As that of keystoneauth. Blocks until it is our turn, and for the call."""
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
                raise DiscoveryFailure(f"the {self.service} service at {without_login(endpoint)} reports no version")
            return known
        self._endpoint = endpoint, monotonic() + ENDPOINT_SECONDS
        return endpoint


def client_class(service: str) -> Any:
    """The class for a service: openstacksdk makes clients, and tells them no name of a service."""
    return type("Client", (ServiceClient,), {"service": service})
