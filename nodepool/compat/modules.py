# SPDX-License-Identifier: Apache-2.0
"""Modules and classes of 11.0.0 that drivers use, one after the other, made of what there is now.

The last one is `ReleasedZooKeeper`.
"""

from __future__ import annotations

import base64
import importlib
import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from nodepool.clock import monotonic, sleep
from nodepool.config.loader import load_config
from nodepool.config.objects import Config as Config
from nodepool.config.objects import DiskImage as DiskImage
from nodepool.config.objects import Label as Label
from nodepool.driver import gateway
from nodepool.driver.config import DEFAULT_DRIVER, DriverReference, ProviderConfig
from nodepool.driver.framework import keyscan
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.exceptions import ConnectionTimeoutException, ZKConflict, ZKConnectionError
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.version import DISTRIBUTION, release_string
from nodepool.zk import images, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import MODEL_API as MODEL_API
from nodepool.zk.components import system_model_api
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.transactions import Election, SessionLost, ZkLock
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
        """The lowest level of all registered components; that of this release while no one knows. May block."""
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


#: ``provider_config.driver``, whose ``name`` is set afterwards.
DriverConfig = DriverReference


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


def RateLimitInstance(limiter: RateLimiter, logger: Callable[..., None], msg: str) -> AbstractContextManager[None]:
    """One call under a limit: what ``limiter(log_method, text)`` gives."""
    return limiter(logger, msg)


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
    """The client of a cluster, as the usual files say, else as a pod in it learns it; blocks for files.

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
            subkey, dt, provider=self.provider_config.name, az=self.node.az, requestor=self.handler.request.requestor
        )

    def updateNodeStats(self, arg: Any) -> None:
        """Nothing: the launcher counts nodes, requests and limits."""

    updateNodeRequestStats = updateProviderLimits = updateTenantLimits = updateNodeStats


# The facade of ZooKeeper as drivers that are not part of Nodepool get it, with all methods of 11.0.0.


@dataclass(frozen=True)
class KnownImage:
    """An image that is known in ZooKeeper, built or not.

    :param paused: nothing is to be built.
    """

    image_name: str
    paused: bool


def _newest(records: list[Any], count: int, state: str | None) -> list[Any]:
    wanted = [record for record in records if state in (None, record.state)]
    return sorted(wanted, key=lambda record: record.state_time or 0, reverse=True)[:count]


class _Passed:
    """What the connection or a store has under another name.

    :param path: from the facade.
    """

    def __init__(self, path: str) -> None:
        self._get = attrgetter(path)

    def __get__(self, facade: ZooKeeper | None, _owner: type[ZooKeeper]) -> Any:
        # Drivers, and their tests, look whether the class has it.
        return self if facade is None else self._get(facade)


#: A facade that a driver makes waits so long for its caches.
CACHE_SECONDS: Final = 60.0


def facade_for_extra_driver(zk: ZooKeeper) -> ZooKeeper:
    """The same connection, caches and stores, with the methods of 11.0.0.

    One that is no plain facade, such as that of tests, is given as it is.
    """
    if type(zk) is not ZooKeeper:
        return zk
    made = object.__new__(ReleasedZooKeeper)
    vars(made).update(vars(zk))
    return made


@dataclass(frozen=True)
class NodeRequestLockStats:
    """The lock directory of a request.

    :param stat: Kazoo's, with ``mtime`` in milliseconds since the epoch.
    """

    lock_id: str
    stat: Any


class ReleasedZooKeeper(ZooKeeper):
    """What 11.0.0 had and the launcher does not use. In that release drivers changed what iterators gave: here too.

    :param client: connected.
    :param enable_cache: follow nodes, requests, pools and images; the constructor blocks until all of them are read.
    """

    IMAGE_ROOT: ClassVar[str] = paths.IMAGES
    NODE_ROOT: ClassVar[str] = paths.NODES
    REQUEST_ROOT: ClassVar[str] = paths.REQUESTS
    REQUEST_LOCK_ROOT: ClassVar[str] = paths.REQUEST_LOCKS
    ELECTION_ROOT: ClassVar[str] = paths.ELECTIONS

    #: Called for each node that changes, since `setNodeStatsEvent`.
    _stats_listener: Callable[[str], None] | None = None

    def __init__(self, client: ZooKeeperClient, enable_cache: bool = True) -> None:
        cache = NodepoolCache(client) if enable_cache else None
        super().__init__(client, cache)
        if cache is not None and not cache.wait_ready(CACHE_SECONDS):
            raise ZKConnectionError(f"ZooKeeper was not read within {CACHE_SECONDS:g} s")

    def nodeIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[Node]:
        """All nodes; each is the caller's own."""
        return (node.copy() for node in super().nodeIterator(cached, cached_ids))

    def nodeRequestIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[NodeRequest]:
        """All requests; each is the caller's own."""
        return (request.copy() for request in super().nodeRequestIterator(cached, cached_ids))

    # -- what is there under another name --

    kazoo_client = _Passed("client.kazoo")
    connected = _Passed("client.connected")
    suspended = _Passed("client.suspended")
    lost = _Passed("client.lost")
    disconnect = _Passed("client.disconnect")
    logConnectionRetryEvent = _Passed("client.logConnectionRetryEvent")
    resetHosts = _Passed("client.reset_hosts")
    getNodeRequestLockIDs = _Passed("requests.lock_dir_ids")
    getImageNames = _Passed("images.image_names")
    getBuildIds = _Passed("images.build_ids")
    getBuild = _Passed("images.build")
    getBuildProviders = _Passed("images.upload_providers")
    getImageUploadNumbers = _Passed("images.upload_ids_of")
    deleteBuild = _Passed("images.delete_build")
    submitBuildRequest = _Passed("images.request_build")
    getBuildRequest = _Passed("images.build_request")
    removeBuildRequest = _Passed("images.remove_build_request")
    getImagePaused = _Passed("images.paused")
    setImagePaused = _Passed("images.set_paused")

    # -- metrics --

    def reportStats(self, statsd: Any, root_key: str) -> None:
        """Send what waits inside, in one packet.

        :param statsd: client of the package ``statsd``.
        :param root_key: e.g. ``nodepool.launcher.<hostname>``.
        """
        cache = self.cache
        reading = {
            "node": cache.nodes.pending_reads if cache else 0,
            "request": cache.requests.pending_reads if cache else 0,
            "image": cache.images.pending_reads if cache else 0,
        }
        with statsd.pipeline() as pipeline:
            pipeline.gauge(f"{root_key}.zk.client.connection_queue", self.client.queued_calls)
            for kind, count in reading.items():
                pipeline.gauge(f"{root_key}.zk.{kind}_cache.event_queue", count)
                pipeline.gauge(f"{root_key}.zk.{kind}_cache.playback_queue", 0)

    def setNodeStatsEvent(self, event: threading.Event | None) -> None:
        """Have an event set whenever a node changes, instead of the one before; None = of no more. Needs a cache."""
        if self._stats_listener is not None and self.cache is not None:
            self.cache.nodes.remove_listener(self._stats_listener)
        self._stats_listener = None
        if event is not None:
            self._stats_listener = lambda _: event.set()
            self.addNodeListener(self._stats_listener)

    # -- nodes --

    def watchNode(self, node: Node, callback: Callable[[Node, bool], bool | None]) -> None:
        """Have a node read again whenever it changes.

        :param callback: called now and after each change, with the same node and whether it is deleted: that is the
            last call. It returns False to be called no more.
        """

        def changed(data: bytes | None, *_: Any) -> bool:
            fresh = None if data is None else self.nodes.get(node.key)
            if fresh is not None:
                node.renew(fresh)
            return callback(node, data is None) is not False and data is not None

        self.client.kazoo.DataWatch(paths.node(node.key), changed)

    def storeNode(self, node: Node) -> None:
        """As the facade of the launcher does, but not without the lock that was taken.

        :raises SessionLost: the session that the node was locked in is over. It may have been written nevertheless.
        """
        self._check_session(node)
        try:
            super().storeNode(node)
        except ZKConflict:
            # Another may have it by now, and that is why.
            self._check_session(node)
            raise
        self._check_session(node)

    def _check_session(self, node: Node) -> None:
        lock = node.lock
        if isinstance(lock, ZkLock) and lock.ephemeral and lock.epoch != self.client.session_epoch:
            raise SessionLost(f"node {node.id} was locked in a session that is lost")

    def getProviderNodes(self, provider_name: str) -> list[Node]:
        """The nodes of a provider."""
        return [node for node in self.nodeIterator() if node.provider == provider_name]

    def countPoolNodes(self, provider_name: str, pool_name: str) -> int:
        """How many nodes a pool has, in every state."""
        return sum(node.pool == pool_name for node in self.getProviderNodes(provider_name))

    def getReadyNodesOfTypes(self, labels: Collection[str]) -> dict[str, list[Node]]:
        """Label -> ready nodes that are no one's. Blocks."""
        found: dict[str, list[Node]] = {}
        for node in self.nodeIterator():
            wanted = [label for label in node.type if label in labels]
            if wanted and node.state == states.READY and not node.allocated_to and not self.isNodeLocked(node):
                for label in wanted:
                    found.setdefault(label, []).append(node)
        return found

    def getNodeLockContenders(self, node: Node | str) -> list[str]:
        """Identifiers of those who hold and wait for a node's lock, the holder first. Blocks.

        :param node: in 11.0.0 the node itself; else its id.
        """
        return super().getNodeLockContenders(node if isinstance(node, str) else node.key)

    def deleteOldestUnusedNode(self, provider_name: str, pool_name: str) -> bool:
        """Have the ready node of a pool deleted that waits longest, and is no one's. False = there is none. Blocks."""
        unused = [
            node
            for node in self.getProviderNodes(provider_name)
            if node.pool == pool_name and node.state == states.READY and not node.allocated_to
        ]
        for node in sorted(unused, key=lambda node: node.state_time or 0):
            node.state = states.USED
            try:
                self.nodes.save_unlocked(node)
            except ZKConflict:
                continue
            return True
        return False

    def removeProviderNodes(self, provider_name: str, provider_nodes: Iterable[Node]) -> None:
        """Remove the records of nodes; the cloud is not touched. Blocks."""
        for node in provider_nodes:
            self.deleteRawNode(node.key)

    # -- requests --

    def storeNodeRequest(self, request: NodeRequest, priority: str = "100") -> None:
        """Submit a new request, or overwrite one; the default of the priority is that of 11.0.0."""
        super().storeNodeRequest(request, priority)

    def updateNodeRequest(self, request: NodeRequest) -> None:
        """Read a request again into the same object. Raises ZKConflict if it is deleted. Blocks."""
        fresh = self.requests.get(request.key)
        if fresh is None:
            raise ZKConflict(f"request {request.id} does not exist any more")
        request.renew(fresh)

    def getNodeRequestLockStats(self, lock_id: str) -> NodeRequestLockStats | None:
        """The lock directory of a request; None = there is none. Blocks."""
        kazoo = self.client.kazoo
        stat = kazoo.retry(kazoo.exists, paths.request_lock(lock_id))
        return None if stat is None else NodeRequestLockStats(lock_id, stat)

    def nodeRequestLockStatsIterator(self) -> Iterator[NodeRequestLockStats]:
        """The lock directories of all requests. Blocks."""
        return filter(None, map(self.getNodeRequestLockStats, self.getNodeRequestLockIDs()))

    def deleteNodeRequestLock(self, lock_id: str) -> None:
        """Remove the lock directory of a request, with all in it. Blocks."""
        self.requests.remove_lock_dir_recursive(lock_id)

    def getStatsElection(self, identifier: str) -> Election:
        """The election of who sends the metrics of all launchers."""
        return Election(self.client, "stats", identifier)

    # -- images: builds, uploads, their locks and requests. They block for round trips --

    def getBuilds(self, image: str, states: Collection[str] | None = None) -> list[ImageBuild]:
        """The builds of an image, of these states or of all."""
        return [build for build in self.images.builds(image) if states is None or build.state in states]

    def getMostRecentBuilds(self, count: int, image: str, state: str | None = None) -> list[ImageBuild]:
        """The newest builds, the last one first."""
        return _newest(self.images.builds(image), count, state)

    def getUploads(
        self, image: str, build_id: str, provider: str, states: Collection[str] | None = None
    ) -> list[ImageUpload]:
        """The uploads of a build to a provider, of these states or of all."""
        found = self.images.uploads(image, build_id, provider)
        return [upload for upload in found if states is None or upload.state in states]

    def getImageUpload(self, image: str, build_id: str, provider: str, upload_number: str) -> ImageUpload | None:
        """One upload; None = there is none."""
        return self.images.upload(image, build_id, provider, upload_number)

    def getMostRecentBuildImageUploads(
        self, count: int, image: str, build_id: str, provider: str, state: str | None = None
    ) -> list[ImageUpload]:
        """The newest uploads of a build, the last one first."""
        return _newest(self.images.uploads(image, build_id, provider), count, state)

    def getMostRecentImageUpload(
        self, image: str, provider: str, state: str = states.READY, cached: bool = False
    ) -> ImageUpload | None:
        """The newest upload of a state, over all builds.

        :param cached: what the cache has is good enough.
        """
        if cached and state == states.READY:
            found = super().getMostRecentImageUpload(image, provider)
            return None if found is None else found.copy()
        uploads = [one for build in self.getBuildIds(image) for one in self.images.uploads(image, build, provider)]
        return next(iter(_newest(uploads, 1, state)), None)

    def getProviderUploads(self, provider_name: str) -> dict[str, dict[str, list[ImageUpload]]]:
        """Image -> build id -> uploads to a provider."""
        return {
            image: {
                build: self.images.uploads(image, build, provider_name)
                for build in self.getBuildIds(image)
                if provider_name in self.getBuildProviders(image, build)
            }
            for image in self.getImageNames()
        }

    def getProviderBuilds(self, provider_name: str) -> dict[str, list[str]]:
        """Image -> ids of builds that have or had uploads to a provider."""
        found = {image: list(builds) for image, builds in self.getProviderUploads(provider_name).items()}
        return {image: builds for image, builds in found.items() if builds}

    def getCachedImages(self) -> list[KnownImage]:
        """All images, from the cache when there is one."""
        if self.cache is None:
            return [KnownImage(image, self.getImagePaused(image)) for image in self.getImageNames()]
        return [KnownImage(image.name, image.paused) for image in self.cache.images.snapshot().images.values()]

    def getCachedBuilds(self) -> list[ImageBuild]:
        """All builds, from the cache when there is one; each is the caller's own."""
        return [build for build, _ in self._known_builds() if build is not None]

    def getCachedImageUploads(self) -> list[ImageUpload]:
        """All uploads, from the cache when there is one; each is the caller's own."""
        return [upload for _, uploads in self._known_builds() for upload in uploads]

    def _known_builds(self) -> Iterator[tuple[ImageBuild | None, list[ImageUpload]]]:
        """Each build with its uploads; None = it cannot be read."""
        if self.cache is not None:
            for image in self.cache.images.snapshot().images.values():
                for build in image.builds.values():
                    yield build.record and build.record.copy(), [upload.copy() for upload in build.all_uploads()]
            return
        for name in self.getImageNames():
            for record in self.images.builds(name):
                place = (name, record.key)
                found = [self.images.uploads(*place, provider) for provider in self.getBuildProviders(*place)]
                yield record, [upload for uploads in found for upload in uploads]

    # -- images: writing --

    def storeBuild(self, image: str, build_data: ImageBuild, build_id: str | None = None) -> str:
        """Write a build; without an id a new one, whose id is returned.

        :raises ZKConflict: another process has written it since it was read, or it was deleted.
        """
        build_data.image_name = image
        if build_id is None:
            return self.images.new_build(build_data)
        build_data.id = build_id
        self._take_version(build_data, self.images.build(image, build_id) if build_data.version is None else None)
        self.images.store_build(build_data)
        return build_id

    def storeImageUpload(
        self, image: str, build_id: str, provider: str, image_data: ImageUpload, upload_number: str | None = None
    ) -> str:
        """Write an upload; without a number a new one, whose number is returned.

        :raises ZKConflict: there is no such build, or another process has written the upload since it was read.
        """
        image_data.image_name, image_data.build_id, image_data.provider_name = image, build_id, provider
        if upload_number is None:
            return self.images.new_upload(image_data)
        image_data.id = upload_number
        unread = image_data.version is None
        self._take_version(image_data, self.images.upload(image, build_id, provider, upload_number) if unread else None)
        self.images.store_upload(image_data)
        return upload_number

    @staticmethod
    def _take_version(record: ImageBuild | ImageUpload, stored: ImageBuild | ImageUpload | None) -> None:
        """A record that was made by the driver is written over what is there now."""
        if record.version is None:
            if stored is None:
                raise ZKConflict(f"{record.image_name}: there is no build or upload {record.id} to write over")
            record.version = stored.version

    def deleteUpload(self, image: str, build_id: str, provider: str, upload_number: str) -> None:
        """Remove the record of an upload; one that does not exist is fine."""
        self.images.delete_upload(image, build_id, provider, upload_number)

    def removeProviderBuilds(self, provider_name: str, provider_builds: dict[str, list[str]]) -> None:
        """Remove the records of uploads to a provider; the cloud is not touched.

        :param provider_builds: as `getProviderBuilds` gives it.
        """
        for image, builds in provider_builds.items():
            for build_id in builds:
                self.images.erase_provider(image, build_id, provider_name)

    # -- images: requests and pauses --

    def hasBuildRequest(self, image: str) -> bool:
        """Is a build asked for?"""
        return self.images.build_request(image) is not None

    # -- images: backup --

    def exportImageData(self) -> dict[str, str]:
        """Builds, uploads and pauses: path -> what is stored there."""
        return images.export_images(self.client)

    def importImageData(self, import_data: Mapping[str, str]) -> None:
        """Write what `exportImageData` gave. Blocks. No other process may write images meanwhile.

        :raises ZKException: bad data.
        """
        images.import_images(self.client, import_data, replace=True)

    # -- images: locks --

    def imageBuildLock(
        self, image: str, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one builds an image at a time. Raises ZKLockException."""
        return self.images.build_lock(image, blocking=blocking, timeout=timeout)

    def imageBuildIdLock(
        self, image: str, build_id: str, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one deletes a build at a time. Raises ZKLockException, and ZKConflict: it does not exist."""
        return self.images.build_id_lock(image, build_id, blocking=blocking, timeout=timeout)

    def imageUploadLock(
        self, image: str, build_id: str, provider: str, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one uploads a build to a provider at a time. Raises ZKLockException, and ZKConflict: there is none."""
        return self.images.upload_lock(image, build_id, provider, blocking=blocking, timeout=timeout)

    def imageUploadNumberLock(
        self, image_upload: ImageUpload, blocking: bool = True, timeout: float | None = None
    ) -> AbstractContextManager[ZkLock]:
        """Only one deletes an upload at a time. Raises ZKLockException, and ZKConflict: it does not exist."""
        names = (image_upload.image_name, image_upload.build_id, image_upload.provider_name, image_upload.key)
        return self.images.upload_id_lock(*names, blocking=blocking, timeout=timeout)
