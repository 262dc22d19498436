# SPDX-License-Identifier: Apache-2.0
"""What drivers that were written for 11.0.0 import, and how it behaves; tests/functional/released_drivers runs them."""

from __future__ import annotations

import base64
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.compat import modules
from nodepool.compat.state_machine_tasks import NodescanRequest, NodescanWorker
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.registry import Drivers
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ConnectionTimeoutException, LaunchKeyscanException
from nodepool.metrics.catalog import LAUNCH
from nodepool.metrics.registry import REGISTRY
from nodepool.model.node import Node
from nodepool.stats import StatsReporter, normalize_statsd_name
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.version import release_string
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for

LOG = logging.getLogger("driver")


def scan(port: int, *, check: bool = True, seconds: float = 30) -> NodescanRequest:
    node = Node("small", id="1")
    node.interface_ip, node.connection_port, node.connection_type = "127.0.0.1", port, "winrm"
    return NodescanRequest(node, check, seconds, LOG)


def test_scans() -> None:
    """A port that answers is enough where no keys are collected; of two ends the first counts."""
    worker = NodescanWorker()
    worker.start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        answered, unchecked = scan(port), scan(1, check=False)
        for request in (answered, unchecked):
            worker.addRequest(request)
            assert request.result() == []
        assert modules.nodescan("127.0.0.1", port, timeout=5, gather_hostkeys=False) == []
    assert answered.complete
    wait_for("it is not waited for any more", lambda: worker.length() == 0)
    silent = scan(port, seconds=0.1)
    worker.addRequest(silent)
    with pytest.raises(LaunchKeyscanException):
        silent.result()
    worker.stop()
    worker.join()
    with pytest.raises(ConnectionTimeoutException):
        modules.nodescan("127.0.0.1", port, timeout=0.1)
    failed = scan(1)
    failed.fail(KeyError("first"))
    failed.fail(ValueError("second"))
    with pytest.raises(KeyError):
        failed.result()


class Client:
    """Of ZooKeeper.

    :param connects: when it is listened to.
    """

    def __init__(self, connected: bool, connects: bool = False) -> None:
        self.connected = connected
        self.connects = connects
        self.kazoo = object()
        self.tell: Callable[[str], None] = lambda _: None

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.connected = self.connected or self.connects
        self.tell = listener


class User(modules.ZooKeeperBase):
    def __init__(self, client: Any) -> None:
        self.seen: list[str] = []
        super().__init__(client)

    def _onConnect(self) -> None:
        self.seen.append("connect")

    def _onDisconnect(self) -> None:
        self.seen.append("disconnect")

    def _onReconnect(self) -> None:
        self.seen.append("reconnect")


@pytest.mark.parametrize("client", [Client(True), Client(False), Client(False, connects=True)])
def test_hooks_of_a_connection(client: Client) -> None:
    """Connected before, later, or while it begins: it is not missed."""
    user = User(client)
    if not client.connected:
        assert user.seen == []
        client.tell("connected")
    for state in ("suspended", "connected", "lost", "connected"):
        client.tell(state)
    assert user.seen == ["connect", "disconnect", "reconnect", "disconnect", "reconnect"]
    assert user.kazoo_client is client.kazoo


def section(name: str, **keys: Any) -> Any:
    pools = [{"name": "main", "labels": [{"name": "small"}]}]
    made = Drivers.get("fake").getProviderConfig({"name": name, "driver": "fake", "pools": pools, **keys})
    made.load(cast(Any, SimpleNamespace(labels={"small": SimpleNamespace(pools=[])}, diskimages={})))
    return made


def test_provider_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts providers anew whose section has changed; only those with images, if a builder wants it so."""
    zk: Any = MemoryZooKeeper()
    config: Any = SimpleNamespace(providers={"a": section("a"), "b": section("b")})
    modules.ProviderManager.reconfigure(None, config, zk)
    before = dict(config.provider_managers)
    assert sorted(before) == ["a", "b"]
    assert before["a"].zk is zk
    changed: Any = SimpleNamespace(providers={"a": section("a"), "b": section("b", priority=7)})
    modules.ProviderManager.reconfigure(config, changed, zk)
    assert [changed.provider_managers[name] is before[name] for name in "ab"] == [True, False]
    modules.ProviderManager.stopProviders(changed)
    monkeypatch.setattr(type(section("a")), "manage_images", property(lambda provider: provider.name == "a"))
    modules.ProviderManager.reconfigure(None, config, zk, only_image_manager=True)
    assert list(config.provider_managers) == ["a"]
    modules.ProviderManager.stopProviders(config)


@pytest.mark.parametrize(
    ("item", "wanted"), [(None, []), ("a", ["a"]), (["a"], ["a"]), (0, []), ({"a": 1}, [{"a": 1}])]
)
def test_configuration(item: Any, wanted: list[Any], tmp_path: Path) -> None:
    assert modules.as_list(item) == wanted
    made = modules.get_provider_config({"name": "lab", "driver": "static"})
    assert isinstance(made, StaticProviderConfig)
    assert made.name == "lab"
    path = tmp_path / "nodepool.yaml"
    tls = "zookeeper-tls: {cert: a, key: b, ca: c}"
    path.write_text(f"zookeeper-servers: [{{host: localhost}}]\n{tls}\nlabels: [{{name: small}}]\n")
    assert list(modules.loadConfig(str(path)).labels) == ["small"]
    one, other = modules.DriverConfig(), modules.DriverConfig()
    one.name = "mine"
    assert one != other
    other.name = "mine"
    assert one == other


def test_rates_and_counts() -> None:
    """Calls wait and are logged; launches are counted, and what the launcher counts itself is not."""
    slept, lines = list[float](), list[tuple[Any, ...]]()
    ManualClock().rules()
    limiter = RateLimiter("cloud", 2, sleep=slept.append)
    for _ in range(2):
        with modules.RateLimitInstance(limiter, lambda *args: lines.append(args), "Listed"):
            pass
    assert (slept, [line[2] for line in lines]) == ([0.5], ["Listed", "Listed"])
    with pytest.raises(KeyError), modules.RateLimitInstance(RateLimiter("cloud", 0), lambda *_: None, "Listed"):
        raise KeyError
    before = REGISTRY.snapshot()
    reporter = StatsReporter(None)
    reporter.provider_config, reporter.node = SimpleNamespace(name="cloud"), SimpleNamespace(az="az1")
    reporter.handler = SimpleNamespace(request=SimpleNamespace(requestor="zuul"))
    reporter.recordLaunchStats("ready", 250)
    for name in ("updateNodeRequestStats", "updateNodeStats", "updateProviderLimits", "updateTenantLimits"):
        assert getattr(reporter, name)(None) is None
    assert REGISTRY.snapshot().keys() - before.keys() == {LAUNCH.series("ready", "cloud", "az1", "zuul")}
    assert normalize_statsd_name("a.b:c d/e") == "a_b_c d/e"


def test_registries() -> None:
    """Of components, with the version of Zuul's model; of the launcher, with its providers; of releases."""
    registry, provider = modules.GlobalRegistry(), object()
    client, zk = object(), cast(Any, object())
    assert registry.model_api == modules.MODEL_API
    assert registry.create(SimpleNamespace(client=client)) is client
    registry.clearRegistry()
    assert registry.model_api == modules.MODEL_API
    view = modules.LauncherView(zk, cast(Any, {"cloud": provider}.get))
    assert (view.getZK(), view.zk) == (zk, zk)
    assert view.getProviderManager("cloud") is provider
    with pytest.raises(KeyError, match="other"):
        view.getProviderManager("other")
    assert modules.version_info.release_string() == release_string()
    assert release_string().startswith(str(modules.version_info))


def test_the_class_has_what_its_objects_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under another name: drivers look for it, and their tests put something else in its place."""
    monkeypatch.setattr(modules.ReleasedZooKeeper, "getBuild", lambda zk, image, build_id: build_id)
    zk: modules.ReleasedZooKeeper = object.__new__(modules.ReleasedZooKeeper)
    assert zk.getBuild("debian", "0000000007") == "0000000007"
    assert all(hasattr(modules.ReleasedZooKeeper, name) for name in ("connected", "getImageNames", "setImagePaused"))


@pytest.mark.parametrize(("host", "v4", "v6"), [("127.0.0.1", "127.0.0.1", None), ("::1", None, "::1")])
def test_nodes(host: str, v4: str | None, v6: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Addresses of a name; numbers until a time is over, and then the error of the caller; durations in the log."""
    node = SimpleNamespace(hostname=host, connection_port=22, public_ipv4=None, public_ipv6=None)
    modules.set_node_ip(node)
    assert (node.public_ipv4, node.public_ipv6) == (v4, v6)
    counts = modules.iterate_timeout(30, KeyError, "a machine", interval=0)
    assert [next(counts), next(counts), next(counts)] == [1, 2, 3]
    with pytest.raises(KeyError, match="Timeout waiting for a machine"):
        next(modules.iterate_timeout(0, KeyError, "a machine"))
    with caplog.at_level(logging.DEBUG), modules.Timer(LOG, "Listed servers"):
        assert vars(modules.Attributes(a=1, b=2)) == {"a": 1, "b": 2}
    assert caplog.messages[-1].startswith("Listed servers in ")


def test_labels_in_order() -> None:
    recorder = modules.LabelRecorder()
    for label, node_id in (("a", "1"), ("a", "2"), ("b", "3")):
        recorder.add(label, node_id)
    assert recorder.labels() == ["a", "a", "b"]
    assert recorder.pop("a") == "1"
    recorder.removeNode("3")
    recorder.removeNode("4")
    assert recorder.labels() == ["a"]
    with pytest.raises(KeyError):
        recorder.pop("b")


class ConfigException(Exception):
    """Of the library."""


# The token without its prefix, as releases up to 36 and from 37 of the library have it.
@pytest.mark.parametrize("key", ["authorization", "BearerToken"])
def test_client_of_kubernetes(key: str, tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    """As files say; where nothing says it, the log does, and the driver goes on."""
    (tmp_path / "ca.crt").write_bytes(b"certificate")

    def from_files(context: str | None) -> Any:
        if context != "lab":
            raise ConfigException(f"no context {context}")
        settings = {"api_key": {key: "Bearer secret"}, "ssl_ca_cert": str(tmp_path / "ca.crt")}
        return SimpleNamespace(configuration=SimpleNamespace(**settings))

    def no_pod(client_configuration: Any) -> None:
        raise ConfigException("not in a pod")

    config = {"new_client_from_config": from_files, "load_incluster_config": no_pod, "ConfigException": ConfigException}
    client = {"CoreV1Api": lambda one: ("core", one), "Configuration": SimpleNamespace, "ApiClient": SimpleNamespace}
    for name, values in (("", {}), (".config", config), (".client", client)):
        module = ModuleType(f"kubernetes{name}")
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    token, certificate, core, other = modules.get_client(LOG, "lab", lambda api_client: ("extra", api_client))
    assert (token, base64.b64decode(certificate or ""), core) == ("secret", b"certificate", ("core", other[1]))
    assert modules.get_client(LOG, "nope") == (None, None, None, None)
    assert "context nope cannot be used" in caplog.text
