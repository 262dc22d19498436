# SPDX-License-Identifier: Apache-2.0
"""Modules and classes of 11.0.0 that drivers use, one after the other, made of what there is now."""

from __future__ import annotations

import base64
import importlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from nodepool.clock import monotonic, sleep
from nodepool.config.loader import load_config
from nodepool.config.objects import Config as Config
from nodepool.config.objects import DiskImage as DiskImage
from nodepool.config.objects import Label as Label
from nodepool.driver import gateway
from nodepool.driver.config import DEFAULT_DRIVER, DriverReference
from nodepool.driver.framework import keyscan
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.registry import Drivers
from nodepool.exceptions import ConnectionTimeoutException
from nodepool.metrics import reports
from nodepool.version import DISTRIBUTION, release_string
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import MODEL_API as MODEL_API
from nodepool.zk.components import system_model_api

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.interface import Provider
    from nodepool.zk.zookeeper import ZooKeeper


class GlobalRegistry:
    """Says which data model the running system speaks."""

    def __init__(self) -> None:
        self.registry: ZooKeeperClient | None = None

    def create(self, zk_client: Any) -> ZooKeeperClient:
        """Look with this connection from now on."""
        client: ZooKeeperClient = getattr(zk_client, "client", zk_client)
        self.registry = client
        return client

    def clearRegistry(self) -> None:
        """Look no more."""
        self.registry = None

    @property
    def model_api(self) -> int:
        """The lowest level of all registered components; that of this release while nobody knows. May block."""
        level = None if self.registry is None else system_model_api(self.registry)
        return MODEL_API if level is None else level


COMPONENT_REGISTRY: Final = GlobalRegistry()


# Functions of the module `nodepool.config` of 11.0.0. Its classes are in `nodepool.config.objects`.


def as_list(item: Any) -> list[Any]:
    """A list as it is, nothing as an empty one, anything else as a list of one."""
    if not item:
        return []
    return item if isinstance(item, list) else [item]


def get_provider_config(provider: dict[str, Any]) -> ProviderConfig:
    """The object of a provider section, not loaded yet."""
    return Drivers.get(provider.get("driver", DEFAULT_DRIVER)).getProviderConfig(provider)


def loadConfig(config_path: str, env: Mapping[str, str] | None = None) -> Config:
    """Load a configuration file. Blocks.

    :param env: not used: the environment of the process counts.
    :raises ConfigError: every problem, one a line, with file and line.
    """
    return load_config(config_path)


# `nodepool.driver.LabelRecorder` and `nodepool.driver.DriverConfig` of 11.0.0.


class LabelRecorder:
    """Labels and the ids of nodes that have them, in the order in which they were added. For one thread."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, str]] = []

    def add(self, label: str, node_id: str) -> None:
        """Note that a node has a label."""
        self._entries.append((label, node_id))

    def labels(self) -> list[str]:
        """The label of each node."""
        return [label for label, _ in self._entries]

    def pop(self, label: str) -> str:
        """Forget the first node with a label; returns its id. Raises KeyError: there is none."""
        for position, (known, node_id) in enumerate(self._entries):
            if known == label:
                del self._entries[position]
                return node_id
        raise KeyError(label)

    def removeNode(self, id: str) -> None:
        """Forget a node; one that is not known is fine."""
        self._entries = [entry for entry in self._entries if entry[1] != id]


class DriverConfig(DriverReference):
    """``provider_config.driver``, whose ``name`` is set afterwards."""

    def __init__(self) -> None:
        super().__init__("")


# The module `nodepool.nodeutils` of 11.0.0.

#: Seconds between two looks of `iterate_timeout`.
ITERATE_INTERVAL: Final = 2


def iterate_timeout(
    max_seconds: float, exc: type[Exception], purpose: str, interval: float = ITERATE_INTERVAL
) -> Iterator[int]:
    """Count from 1, with a pause before each further number; blocks.

    :param max_seconds: from the first number on.
    :param exc: raised when they are over.
    :param purpose: for its text.
    :param interval: of the pauses, seconds.
    """
    begun, count = monotonic(), 0
    while monotonic() < begun + max_seconds:
        count += 1
        yield count
        sleep(interval)
    raise exc(f"Timeout waiting for {purpose}")


def nodescan(ip: str, port: int = 22, timeout: float = 60, gather_hostkeys: bool = True) -> list[str]:
    """The host keys of a machine, ``"<type> <base64>"`` each; blocks.

    :param timeout: seconds.
    :param gather_hostkeys: False: it is enough that the port answers, and the result is empty.
    :raises ConnectionTimeoutException: it does not answer.
    """
    try:
        return list(keyscan.scan(ip, port, timeout=timeout, gather_keys=gather_hostkeys).host_keys)
    except keyscan.ScanFailed as failure:
        raise ConnectionTimeoutException(str(failure)) from failure


def set_node_ip(node: Any) -> None:
    """Set ``public_ipv4`` or ``public_ipv6`` to the first address of ``node.hostname``; blocks for the resolver.

    :raises OSError: the name is unknown.
    """
    found = socket.getaddrinfo(node.hostname, node.connection_port, type=socket.SOCK_STREAM)
    v4 = next((address[4][0] for address in found if address[0] == socket.AF_INET), None)
    v6 = next((address[4][0] for address in found if address[0] == socket.AF_INET6), None)
    if v4 is not None:
        node.public_ipv4 = v4
    elif v6 is not None:
        node.public_ipv6 = v6


class Timer:
    """``with Timer(log, "Listed servers"):`` logs how long that took, as debug."""

    def __init__(self, log: logging.Logger, msg: str) -> None:
        self.log = log
        self.msg = msg
        self._begun = 0.0

    def __enter__(self) -> Self:
        self._begun = monotonic()
        return self

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.log.debug("%s in %s", self.msg, monotonic() - self._begun)


class Attributes:
    """An object with these attributes."""

    def __init__(self, **kw: Any) -> None:
        vars(self).update(kw)


# The module `nodepool.provider_manager` of 11.0.0.


def get_provider(provider: ProviderConfig) -> Provider:
    """Make the provider of a loaded section; it is not started."""
    made: Provider = gateway.get_provider(provider.name, Drivers.get(provider.driver.name), provider)
    return made


class ProviderManager:
    """Providers of a configuration for programs of their own; the launcher has `nodepool.runtime.providers`."""

    log = logging.getLogger("nodepool.ProviderManager")

    @staticmethod
    def reconfigure(old_config: Any, new_config: Any, zk_conn: Any, only_image_manager: bool = False) -> None:
        """Start the providers of a configuration, into ``new_config.provider_managers``; stop those that went.

        :param old_config: the configuration before, or None.
        :param only_image_manager: leave out those that have no images.
        """
        old = dict(getattr(old_config, "provider_managers", {}))
        managers: dict[str, Provider] = {}
        for name, section in new_config.providers.items():
            if only_image_manager and not section.manage_images:
                continue
            running = old.get(name)
            if running is not None and running.provider == section:
                managers[name] = old.pop(name)
                continue
            manager = get_provider(section)
            manager.zk = zk_conn
            gateway.start_provider(manager, zk_conn)
            managers[name] = manager
        new_config.provider_managers = managers
        for manager in old.values():
            gateway.stop_provider(manager)

    @staticmethod
    def stopProviders(config: Any) -> None:
        """Stop the providers of a configuration, and wait for them."""
        managers = list(getattr(config, "provider_managers", {}).values())
        for manager in managers:
            gateway.stop_provider(manager)
        for manager in managers:
            gateway.join_provider(manager)


# `nodepool.driver.utils.RateLimitInstance` of 11.0.0.


class RateLimitInstance(AbstractContextManager[None]):
    """One call under a limit: what ``limiter(log_method, text)`` gives."""

    def __init__(self, limiter: RateLimiter, logger: Callable[..., None], msg: str) -> None:
        self._turn = limiter(logger, msg)

    def __enter__(self) -> None:
        self._turn.__enter__()

    def __exit__(
        self, etype: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._turn.__exit__(etype, value, tb)


# The name ``nodepool.version.version_info`` of 11.0.0.


class VersionInfo:
    """The methods of ``pbr.version.VersionInfo`` that are in use."""

    package = DISTRIBUTION

    def release_string(self) -> str:
        """The release, e.g. ``12.0.0``."""
        return release_string()

    def version_string(self) -> str:
        """The release without what follows its three numbers."""
        return ".".join(release_string().split(".")[:3])

    def __str__(self) -> str:
        return self.version_string()


version_info: Final = VersionInfo()


# `nodepool.zk.ZooKeeperBase` of 11.0.0.


class ZooKeeperBase:
    """Base of classes that use the connection by themselves, and want to know what becomes of it.

    The hooks are called in the connection's thread and must not block.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        self.client = client
        self._lock = threading.Lock()
        #: ``_lock`` guards it.
        self._was_connected = False
        # First: the connection may come at this moment.
        client.add_session_listener(self._session_changed)
        if client.connected and self._is_first():
            self._onConnect()

    @property
    def kazoo_client(self) -> Any:
        """Kazoo's client. Raises ZKConnectionError: there is none yet."""
        return self.client.kazoo

    def _session_changed(self, state: str) -> None:
        if state != "connected":
            self._onDisconnect()
        elif self._is_first():
            self._onConnect()
        else:
            self._onReconnect()

    def _is_first(self) -> bool:
        with self._lock:
            first, self._was_connected = not self._was_connected, True
        return first

    def _onConnect(self) -> None:
        """The connection is there for the first time."""

    def _onDisconnect(self) -> None:
        """The connection is suspended or lost."""

    def _onReconnect(self) -> None:
        """The connection is there again."""


# The module `nodepool.driver.utils_k8s` of 11.0.0. The library ``kubernetes`` is the driver's: it installs it.


def get_client(
    log: logging.Logger, context: str | None, extra_client_constructor: Callable[[Any], Any] | None = None
) -> tuple[str | None, str | None, Any, Any]:
    """The client of a cluster, as the usual files say, else as a pod in it is told; blocks for files.

    :param context: in the files; None = the current one.
    :param extra_client_constructor: makes another client from the first one's ``ApiClient``.
    :return: the bearer token of the context; its CA in base64; the client of the core API; the other client. All None
        if nothing says how to connect, which is logged.
    """
    config = importlib.import_module("kubernetes.config")
    client = importlib.import_module("kubernetes.client")
    try:
        api_client = _api_client(config, client, context)
    except config.ConfigException as error:
        log.error("Kubernetes context %s cannot be used: %s", context, error)
        return None, None, None, None
    token, ca = _credentials(api_client.configuration)
    other = None if extra_client_constructor is None else extra_client_constructor(api_client)
    return token, ca, client.CoreV1Api(api_client), other


def _api_client(config: Any, client: Any, context: str | None) -> Any:
    try:
        return config.new_client_from_config(context=context)
    except FileNotFoundError:
        missing: Exception | None = None
    except config.ConfigException as error:
        # Without files there is still the pod that we may run in.
        if context is not None:
            raise
        missing = error
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        raise missing or error from None
    return client.ApiClient(configuration)


def _credentials(configuration: Any) -> tuple[str | None, str | None]:
    keys = configuration.api_key
    # Release 37 of the library calls it otherwise.
    token = keys.get("authorization") or keys.get("BearerToken")
    path = configuration.ssl_ca_cert
    ca = base64.b64encode(Path(path).read_bytes()).decode("ascii") if path else None
    return (token.split()[-1] if token else None), ca


# ``handler.pw.nodepool`` of 11.0.0: what a driver may ask of its launcher.


class LauncherView:
    """Any thread may use it; nothing blocks.

    :param provider: the running provider of a name; None = there is none now.
    """

    def __init__(self, zk: ZooKeeper, provider: Callable[[str], Provider | None]) -> None:
        self.zk = zk
        self._provider = provider

    def getZK(self) -> ZooKeeper:
        """The connection to ZooKeeper."""
        return self.zk

    def getProviderManager(self, provider_name: str) -> Provider:
        """The running provider of a name. Raises KeyError: there is none now."""
        found = self._provider(provider_name)
        if found is None:
            raise KeyError(provider_name)
        return found


# The module `nodepool.stats` of 11.0.0.


class StatsReporter:
    """Base of classes that launch nodes by themselves, and count it.

    They have ``provider_config``, ``node`` and ``handler``. What the launcher counts itself is not counted again:
    the other methods do nothing.

    :param statsd_client: not used: the launcher has one of its own.
    """

    provider_config: Any
    node: Any
    handler: Any

    def __init__(self, statsd_client: Any) -> None:
        self._statsd = statsd_client

    def recordLaunchStats(self, subkey: str, dt: float) -> None:
        """Note the result of a launch.

        :param subkey: ``ready`` or ``error.<class>``.
        :param dt: milliseconds that it took.
        """
        reports.report_launch(
            subkey,
            dt,
            provider=self.provider_config.name,
            az=self.node.az,
            requestor=self.handler.request.requestor,
        )

    def updateNodeRequestStats(self, zk_conn: Any) -> None:
        """Nothing: the launcher counts requests."""

    def updateNodeStats(self, zk_conn: Any) -> None:
        """Nothing: the launcher counts nodes."""

    def updateProviderLimits(self, provider: Any) -> None:
        """Nothing: the launcher counts limits."""

    def updateTenantLimits(self, tenant_limits: Any) -> None:
        """Nothing: the launcher counts limits of tenants."""
