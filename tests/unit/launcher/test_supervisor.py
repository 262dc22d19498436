# SPDX-License-Identifier: Apache-2.0
"""The main loop by its single turn, and how a launcher begins and ends (rules G)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from kazoo.exceptions import ConnectionLoss

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.exceptions import ConfigError, ZKException
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.supervisor import NodePool
from nodepool.model import component
from nodepool.plan.retries import Backoff
from nodepool.runtime import reload
from nodepool.runtime.providers import Providers
from nodepool.runtime.worker import Thread
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.still_launcher import StillLauncher
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.launcher.conftest import Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider(name, cloud=cloud_name) for name in ("one", "two")])


def rewrite(launcher: StillLauncher) -> None:
    """The changed settings, as the main loop takes them."""
    launcher.local.write(launcher.local.settings)
    wait_for("the change is noticed", launcher.nodepool.configuration.source.changed)
    launcher.nodepool.run_once()


def test_registered_pools_are_never_old(launcher: StillLauncher) -> None:
    """A-5, A-15: a registry that changes while a worker reads it does not leave an old view behind."""
    nodepool = launcher.nodepool
    wait_for("both are registered", lambda: launcher.worker("one") and len(nodepool.pools.registered()) == 2)
    pools = nodepool.cache.pools
    nodepool.pools.changed()
    values = pools.values

    def change_meanwhile() -> list[component.PoolComponent]:
        found = values()
        pools.values = values  # type: ignore[method-assign]
        pools._drop(next(iter(pools.ids())))
        return found

    pools.values = change_meanwhile  # type: ignore[method-assign]
    assert len(nodepool.pools.registered()) == 2
    assert len(nodepool.pools.registered()) == 1


def test_pools_follow_the_configuration(launcher: StillLauncher, cloud_name: str) -> None:
    """G-6, G-7: a pool that goes retires, one that comes is started, the others stay as they are."""
    nodepool = launcher.nodepool
    kept, gone = nodepool.pool_threads.get("one", "main"), nodepool.pool_threads.get("two", "main")
    launcher.local.settings["providers"][1] = fake_provider("three", cloud=cloud_name)
    rewrite(launcher)
    assert nodepool.pool_threads.get("one", "main") is kept
    assert nodepool.pool_threads.get("two", "main") is None
    assert nodepool.pool_threads.get("three", "main") is not None
    assert gone is not None
    assert nodepool.pool_threads.of_provider("two") == [gone]
    gone.run_once()
    assert gone.stopping
    nodepool.run_once()
    assert nodepool.pool_threads.of_provider("two") == []


def test_what_retires_is_in_progress(launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-4: a request of a pool that retires is not lost: it is ours."""
    cloud.set(hang=True)
    worker = launcher.worker("two")
    request_id = znodes.submit(["small"], provider="two")
    launcher.passes(worker, "it launches", lambda: worker.own_launches())
    del launcher.local.settings["providers"][1]
    rewrite(launcher)
    assert launcher.nodepool.pool_threads.requests_in_progress() == {request_id}
    cloud.set(hang=False)
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")


def test_dead_worker(launcher: StillLauncher, znodes: PoolZnodes) -> None:
    """G-7: another one takes its place; the entry of the dead one goes, or it would keep requests from failing."""
    dead = launcher.worker("one")
    dead.stop()
    launcher.nodepool.run_once()
    other = launcher.nodepool.pool_threads.get("one", "main")
    assert other is not None
    assert other is not dead
    assert [pool["provider_name"] for pool in znodes.pools()] == ["two"]
    launcher.worker("one")
    assert len(znodes.pools()) == 2


def test_dead_helpers(launcher: StillLauncher) -> None:
    """G-1"""
    nodepool = launcher.nodepool
    dead = [nodepool.deletion.current, nodepool.cleanup.current, nodepool.min_ready.current]
    for worker in dead:
        worker.stop()
    nodepool.run_once()
    alive = [nodepool.deletion.current, nodepool.cleanup.current, nodepool.min_ready.current]
    for old, new in zip(dead, alive, strict=True):
        assert new is not old
        assert type(new) is type(old)
        assert not new.stopping


def test_calls_of_drivers_are_watched(launcher: StillLauncher) -> None:
    """G-16, G-1: by a thread of its own, which is replaced if it dies."""

    def watch() -> Thread:
        (found,) = (thread for thread in launcher.nodepool.parts.threads() if thread.name == "CallWatch")
        return found

    dead = watch()
    dead.stop()
    launcher.nodepool.run_once()
    assert watch() is not dead


def test_broken_file(launcher: StillLauncher, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: refused, said once, and nothing is different."""
    nodepool = launcher.nodepool
    before = (nodepool.configuration.current, dict(nodepool.providers.running), nodepool.pool_threads.current())
    phases: list[str] = []
    nodepool.configuration.on_reload = phases.append
    launcher.local.settings["max-hold-age"] = "long"
    rewrite(launcher)
    assert "The configuration is refused" in caplog.text
    assert (nodepool.configuration.current, dict(nodepool.providers.running), nodepool.pool_threads.current()) == before
    assert phases == ["reloading", "serving; the changed configuration file is refused"]
    caplog.clear()
    nodepool.run_once()
    assert "refused" not in caplog.text


def test_reload_that_fails_half_way(launcher: StillLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-8: the file is in effect when all of it is; until then the launcher says what is not, and tries again."""
    nodepool, apply = launcher.nodepool, type(launcher.nodepool.providers).apply
    before, errors = nodepool.configuration.current, [RuntimeError("no way")]

    def fail_once(providers: Providers, configs: Any) -> None:
        if errors:
            raise errors.pop()
        apply(providers, configs)

    monkeypatch.setattr(Providers, "apply", fail_once)
    monkeypatch.setattr(reload, "RETRY", Backoff(0.0, 0.0))
    launcher.local.settings["max-hold-age"] = 77
    rewrite(launcher)
    failed = ["providers could not be changed: RuntimeError: no way", "changed: the connection, traces"]
    assert (nodepool.configuration.current, nodepool.reload_errors) == (before, failed)
    last = nodepool.reload_events.last
    assert last is not None
    assert (last.ok, last.text) == (False, "; ".join(failed))
    nodepool.run_once()
    assert (nodepool.configuration.current.max_hold_age, nodepool.reload_errors) == (77, [])
    assert nodepool.configuration.current.digest != before.digest


def test_broken_section(launcher: StillLauncher, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: the provider runs on with its old section; said once."""
    nodepool = launcher.nodepool
    before = (dict(nodepool.providers.running), nodepool.pool_threads.current())
    launcher.local.settings["providers"][0]["pools"][0]["labels"].append({"name": "unknown"})
    rewrite(launcher)
    assert "Provider one runs on with its old section" in caplog.text
    assert (dict(nodepool.providers.running), nodepool.pool_threads.current()) == before
    caplog.clear()
    nodepool.run_once()
    assert caplog.text == ""


def test_other_servers(launcher: StillLauncher, zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    """G-13: the connection takes the new list without a restart; what needs one is said."""
    nodepool = launcher.nodepool
    settings: Any = launcher.local._base
    base = settings["zookeeper-servers"][0]
    settings["zookeeper-servers"] = [base, {**base, "host": "localhost"}]
    rewrite(launcher)
    assert nodepool.client.hosts.startswith(f"127.0.0.1:{base['port']},localhost:{base['port']}/")
    settings["zookeeper-servers"] = [{**base, "chroot": "/elsewhere"}]
    settings["zookeeper-tls"]["cert"] = str(zookeeper.certificates.ca)
    with caplog.at_level(logging.WARNING):
        rewrite(launcher)
    assert "this takes effect after a restart" in caplog.text
    assert "zookeeper-tls changed" in caplog.text


def test_no_action_without_a_connection(launcher: StillLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-3"""
    monkeypatch.setattr(type(launcher.nodepool.client), "connected", property(lambda client: False))
    monkeypatch.setattr(PoolWorker, "is_alive", lambda worker: False)
    before = launcher.nodepool.pool_threads.current()
    launcher.nodepool.run_once()
    assert launcher.nodepool.pool_threads.current() == before


def test_roots_are_there(launcher: StillLauncher, znodes: PoolZnodes) -> None:
    """The first client that comes finds them."""
    assert {"nodes", "requests", "requests-lock"} <= set(znodes.children("/nodepool"))


def write_config(path: Path, zookeeper: ZooKeeperServer, port: int, chroot: str) -> None:
    certificates = zookeeper.certificates
    settings = {
        "zookeeper-servers": [{"host": "127.0.0.1", "port": port, "chroot": chroot}],
        "zookeeper-tls": {
            "cert": str(certificates.client_cert),
            "key": str(certificates.client_key),
            "ca": str(certificates.ca),
        },
        "labels": [{"name": "small"}],
        "providers": [fake_provider("one")],
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")


def test_stop_while_zookeeper_does_not_answer(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Bounded, also before there ever was a connection."""
    path = tmp_path / "nodepool.yaml"
    write_config(path, zookeeper, free_ports(1)[0], "/nowhere")
    nodepool = NodePool(str(path))
    nodepool.start()
    thread = threading.Thread(target=nodepool.run, name="launcher")
    thread.start()
    wait_for("it tries", lambda: nodepool.client._client is not None)
    nodepool.stop()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert not nodepool.ready.is_set()


def test_stop_while_the_connection_is_lost(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> None:
    """Nobody waits for ZooKeeper to come back."""
    path = tmp_path / "nodepool.yaml"
    proxy = TcpProxy(zookeeper.tls_port)
    proxy.start()
    write_config(path, zookeeper, proxy.port, chroot)
    nodepool = NodePool(str(path))
    nodepool.start()
    thread = threading.Thread(target=nodepool.run, name="launcher")
    thread.start()
    wait_for("it serves", lambda: znodes.pools())
    proxy.stop()
    wait_for("the connection is lost", lambda: not nodepool.client.connected)
    nodepool.stop()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_connection_lost_at_the_start(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher that loses its connection while it begins tries again; it does not end with a traceback."""
    path = tmp_path / "nodepool.yaml"
    write_config(path, zookeeper, zookeeper.tls_port, chroot)
    nodepool = NodePool(str(path))
    nodepool.start()
    client = nodepool.client
    connect, troubles = client.connect, [True, True]

    def connect_and_lose(timeout: float | None = None) -> None:
        connect(timeout)
        ensure = client.kazoo.ensure_path

        def flaky(path: str) -> object:
            if troubles:
                troubles.pop()
                raise ConnectionLoss
            return ensure(path)

        monkeypatch.setattr(client.kazoo, "ensure_path", flaky)

    monkeypatch.setattr(client, "connect", connect_and_lose)
    thread = threading.Thread(target=nodepool.run, name="launcher")
    thread.start()
    wait_for("it serves", lambda: znodes.pools())
    nodepool.stop()
    thread.join(DEADLINE_SECONDS)
    assert troubles == []


@pytest.mark.parametrize("text", ["labels: [{name: small", "providers: []\n"])
def test_start_with_a_bad_file(tmp_path: Path, text: str) -> None:
    """Refused before anything is connected."""
    path = tmp_path / "nodepool.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((ConfigError, ZKException)):
        NodePool(str(path)).start()
