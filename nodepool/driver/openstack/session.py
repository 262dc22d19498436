# SPDX-License-Identifier: Apache-2.0
"""openstacksdk's session as a plain HTTP client: login, catalog, version discovery, TLS settings; nothing more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool.driver.openstack.clouds import statsd_of
from nodepool.driver.openstack.errors import ServiceAbsent

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

#: Seconds for one call when clouds.yaml has no ``api_timeout``.
DEFAULT_TIMEOUT_SECONDS: Final = 60.0
#: Connections to one host that are kept.
POOL_SIZE: Final = 32


class HttpClient(Protocol):
    """What is used of a keystoneauth adapter."""

    def request(self, url: str, method: str, **arguments: Any) -> Any: ...


def make_client(region: CloudRegion, service: str) -> HttpClient:
    """A keystoneauth adapter as openstacksdk sets it up, without the SDK's own layer around each call.

    Logs in. Raises ServiceAbsent, and what keystoneauth raises.
    """
    from nodepool.driver.openstack.service_client import client_class

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
    client: HttpClient = region.get_session_client(service, constructor=client_class(service, statsd_of(region)))
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


def close(client: HttpClient) -> None:
    """Close the connections of a client that are not in use."""
    requests_session = getattr(getattr(client, "session", None), "session", None)
    if requests_session is not None:
        requests_session.close()
