# SPDX-License-Identifier: Apache-2.0
"""What happens to servers in the simulated cloud, on a clock that the test moves."""

from __future__ import annotations

import pytest

from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.knobs import BootRule, DeleteRule, Knobs
from nodepool.testing.openstack.messages import ApiError
from nodepool.testing.simulator.addresses import AddressPool
from tests.support.manual_clock import ManualClock


def _boot_order(seed: int) -> tuple[list[str], list[str]]:
    clock = ManualClock()
    rules = [BootRule(rate=0.3, message="failed")]
    cloud = Cloud(Knobs(boot_seconds=(1, 30), boots=rules), seed, clock)
    servers = [cloud.add_server(f"np{number}") for number in range(20)]
    order: list[str] = []
    for _ in range(31):
        clock.pass_seconds(1)
        cloud.core.run_due()
        order += [server.name for server in servers if server.status != "BUILD" and server.name not in order]
    return order, [server.status for server in servers]


def test_the_same_seed_gives_the_same_course() -> None:
    assert _boot_order(1) == _boot_order(1)
    assert _boot_order(1) != _boot_order(2)
    assert set(_boot_order(1)[1]) == {"ACTIVE", "ERROR"}


def test_a_deletion_during_the_boot_wins() -> None:
    clock = ManualClock()
    cloud = Cloud(Knobs(boot_seconds=(10, 10), delete_seconds=(20, 20)), clock=clock)
    server = cloud.add_server()
    cloud.compute.delete(server.id)
    clock.pass_seconds(11)
    cloud.core.run_due()
    assert (server.status, server.task_state) == ("BUILD", "deleting")
    clock.pass_seconds(11)
    cloud.core.run_due()
    assert cloud.contents() == {"servers": 0, "ports": 0, "floating_ips": 0, "volumes": 0, "images": 1}


def test_usage_returns_to_zero() -> None:
    clock = ManualClock()
    cloud = Cloud(clock=clock)
    servers = [cloud.add_server() for _ in range(3)]
    assert (cloud.compute.used_cores, cloud.compute.used_ram) == (3, 3 * 1024)
    for server in servers:
        cloud.compute.delete(server.id)
        cloud.compute.delete(server.id)
    clock.pass_seconds(1)
    cloud.core.run_due()
    assert (cloud.compute.used_cores, cloud.compute.used_ram, len(cloud.compute.servers)) == (0, 0, 0)
    with pytest.raises(ApiError) as caught:
        cloud.compute.delete(servers[0].id)
    assert caught.value.status == 404
    observer = cloud.compute.observer
    assert (observer.peak_machines, observer.peak_cores, observer.peak_ram) == (3, 3, 3 * 1024)
    assert (observer.peak_cores_by_provider, observer.peak_ram_by_provider) == ({"": 3}, {"": 3 * 1024})


def test_rules_apply_as_often_as_they_say() -> None:
    cloud = Cloud(Knobs(deletes=[DeleteRule(count=2)]), clock=ManualClock())
    servers = [cloud.add_server() for _ in range(4)]
    for server in servers:
        cloud.compute.delete(server.id)
    assert [server.task_state for server in servers] == ["spawning", "spawning", "deleting", "deleting"]
    assert cloud.core.events["deletes swallowed"] == 2


def test_text_is_made_once_per_change() -> None:
    clock = ManualClock()
    cloud = Cloud(clock=clock)
    server = cloud.add_server()
    assert server.text(True, in_list=False) is server.text(True, in_list=False)
    before = server.text(True, in_list=False)
    clock.pass_seconds(1)
    cloud.core.run_due()
    assert server.text(True, in_list=False) != before


def test_an_address_is_used_again_as_late_as_possible() -> None:
    pool = AddressPool("127.0.1.0/29")
    taken = [pool.take() for _ in range(5)]
    assert taken == [f"127.0.1.{number}" for number in range(2, 7)]
    assert pool.take() is None
    pool.give_back("127.0.1.4")
    pool.give_back("::ffff:127.0.1.2")
    assert [pool.take(), pool.take(), pool.take()] == ["127.0.1.2", "127.0.1.4", None]


def test_a_full_network_gives_back_what_it_took() -> None:
    cloud = Cloud(clock=ManualClock())
    cloud.add_port("tiny")
    with pytest.raises(ApiError, match="No more IP addresses"):
        cloud.add_port("tiny")
    assert cloud.contents()["ports"] == 1


def test_a_floating_ip_is_free_when_its_port_goes() -> None:
    cloud = Cloud(clock=ManualClock())
    port, other = cloud.add_port("private"), cloud.add_port("private")
    floating = cloud.add_floating_ip()
    cloud.network.attach(floating, port["id"])
    with pytest.raises(ApiError, match="already has a floating IP"):
        cloud.network.attach(cloud.add_floating_ip(), port["id"])
    cloud.network.delete_port(port["id"])
    assert (floating["port_id"], floating["status"]) == (None, "DOWN")
    cloud.network.attach(floating, other["id"])
    assert floating["fixed_ip_address"] == other["fixed_ips"][0]["ip_address"]
