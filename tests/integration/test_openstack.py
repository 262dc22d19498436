# SPDX-License-Identifier: Apache-2.0
"""Launchers with a simulated OpenStack: what options do (reference/configuration 7), bad input, a cloud that fails."""

from __future__ import annotations

import base64
import logging
import socket
from typing import Any

import pytest

from nodepool.driver.framework import fact
from nodepool.driver.openstack import cloud as cloud_module
from nodepool.driver.statemachine import cloud as statemachine
from nodepool.driver.statemachine import deletion, instance, inventory
from nodepool.launcher import status
from nodepool.plan import retries
from nodepool.plan.retries import Backoff
from nodepool.runtime import providers
from simulators.openstack import OpenStackSimulator
from simulators.openstack.servers import Server
from tests.support.openstack_place import Place
from tests.support.ports import free_ports
from tests.support.statsd_server import StatsdServer
from tests.support.tables import rows
from tests.support.wait import present, wait_for


def servers(place: Place) -> list[Server]:
    """Those that live."""
    with place.simulator.cloud() as cloud:
        return [server for server in cloud.compute.servers if not server.gone]


def served(place: Place, label: str = "small") -> tuple[dict[str, Any], Server]:
    """Launch, ask for a node, and return it with its server."""
    place.launch()
    (node,) = place.fulfilled(place.znodes.submit([label]))
    (server,) = servers(place)
    return node, server


def test_label_and_pool(place: Place) -> None:
    """key-name, config-drive, userdata, instance-properties, dynamic-instance-properties, security-groups, networks,
    availability-zones, flavor-name: the server is made so."""
    place.simulator.change(availability_zones=["az1", "az2"])
    with place.simulator.cloud() as cloud:
        cloud.network.add_security_group("ci")
    place.pool.update({"security-groups": ["ci", "default"], "availability-zones": ["az2"], "networks": ["private"]})
    place.section["cloud-images"][0]["config-drive"] = True
    del place.label["min-ram"]
    place.label.update(
        {
            "flavor-name": "large",
            "key-name": "key",
            "userdata": "#cloud-config\nhostname: ä",
            "networks": ["dual"],
            "instance-properties": {"team": "ci"},
            "dynamic-instance-properties": {"who": "{request.requestor} {request.labels}", "bad": "{request.secret}"},
        }
    )
    node, server = served(place)
    assert (server.flavor["name"], server.key_name, server.zone, server.config_drive) == ("large", "key", "az2", True)
    assert base64.b64decode(server.user_data or "").decode() == "#cloud-config\nhostname: ä"
    assert server.security_groups == ["ci", "default"]
    assert list(server.addresses) == ["dual"]
    assert (server.metadata["team"], server.metadata["who"]) == ("ci", "test ['small']")
    assert "bad" not in server.metadata
    assert (node["az"], node["resources"]["cores"]) == ("az2", 4)
    assert node["public_ipv6"]


@pytest.mark.parametrize("by", ["name", "id", "image-name"])
def test_cloud_image(place: Place, by: str) -> None:
    """cloud-images: by its own name, by image-id, by image-name; login settings go to the node; config-drive: false."""
    with place.simulator.cloud() as cloud:
        image = cloud.images.add_active("other")
    key = {
        "name": {"name": "other"},
        "id": {"name": "x", "image-id": image["id"]},
        "image-name": {"name": "x", "image-name": "other"},
    }[by]
    section = {**place.section["cloud-images"][0], "username": "root", "python-path": "/py", "shell-type": "cmd", **key}
    if by != "image-name":
        del section["image-name"]
    place.section["cloud-images"] = [{**section, "config-drive": False}]
    place.label["cloud-image"] = section["name"]
    # Else unfinished uploads are looked for.
    del place.section["diskimages"]
    node, server = served(place)
    assert (server.image_id, server.config_drive) == (image["id"], False)
    assert (node["username"], node["python_path"], node["shell_type"]) == ("root", "/py", "cmd")
    assert place.calls("image.list_images") == (0 if by == "id" else 1)


def test_region(place: Place) -> None:
    """region-name: one of those that clouds.yaml has; not the first."""
    regions = ["RegionOne", "RegionTwo"]
    place.simulator.change(regions=regions)
    place.clouds["simulator"]["regions"] = regions
    del place.clouds["simulator"]["region_name"]
    place.write_clouds()
    place.section["region-name"] = "RegionTwo"
    node, _ = served(place)
    assert node["region"] == "RegionTwo"


def test_private_cloud(place: Place) -> None:
    """clouds.yaml: private: true: the launcher is inside, nodes are reached at their own addresses.

    reference/zookeeper 5.1: without region-name a node has no region.
    """
    place.clouds["simulator"]["private"] = True
    place.write_clouds()
    place.pool["networks"] = ["private"]
    node, _ = served(place)
    assert node["interface_ip"] == node["private_ipv4"]
    assert place.contents()["floating_ips"] == 0
    assert place.clouds["simulator"]["region_name"]
    assert node["region"] is None


@pytest.mark.parametrize(("host_has_ipv6", "only_v4"), [(True, False), (True, True), (False, False)])
def test_address_family(place: Place, monkeypatch: pytest.MonkeyPatch, host_has_ipv6: bool, only_v4: bool) -> None:
    """force_ipv4 in clouds.yaml (O-12, L-13, K-6): the host keys are those that the address answers with."""
    monkeypatch.setattr(cloud_module, "host_has_ipv6", lambda: host_has_ipv6)
    place.clouds["simulator"]["force_ipv4"] = only_v4
    place.write_clouds()
    place.pool["networks"] = ["dual"]
    node, server = served(place)
    v4, v6 = (entry["addr"] for entry in server.addresses["dual"])
    assert node["interface_ip"] == (v6 if host_has_ipv6 and not only_v4 else v4)
    assert (node["public_ipv4"], node["public_ipv6"]) == (v4, None if only_v4 else v6)
    assert node["host_keys"]


@pytest.mark.parametrize("level", ["pool", "label"])
def test_no_host_key_checking(place: Place, level: str) -> None:
    """host-key-checking: false: nothing is contacted (K-1); the label's word counts."""
    place.section["cloud-images"][0]["connection-port"] = free_ports(1)[0]
    place.pool["host-key-checking"] = level == "label"
    (place.pool if level == "pool" else place.label)["host-key-checking"] = False
    node, _ = served(place)
    assert node["host_keys"] == []


@rows(__file__, "limits_of_a_pool")
def test_limits_of_a_pool(place: Place, limits: dict[str, int], label: dict[str, Any]) -> None:
    """Each has room for one node and not for two (Q-2, Q-18): the second waits until the first is gone."""
    place.pool.update(limits)
    place.label.update(label)
    place.launch()
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    second = place.znodes.submit(["small"])
    wait_for("the pool says that it is full", lambda: place.paused() == {"cloud-a": True})
    assert place.calls("compute.create_server") == 1
    place.give_back(first)
    place.fulfilled(second)
    place.give_back(second)
    place.wait_empty()
    assert place.simulator.state()["peak_servers"] == 1


def test_quota_of_the_cloud_that_is_ignored(place: Place) -> None:
    """ignore-provider-quota: only what the pool says counts (Q-6); the cloud may still refuse."""
    place.simulator.change(quota={"instances": 1})
    place.pool["ignore-provider-quota"] = True
    place.launch()
    first = place.znodes.submit(["small"])
    place.fulfilled(first)
    second = place.znodes.submit(["small"])
    wait_for("the cloud is asked", lambda: place.calls("compute.create_server") >= 2)
    wait_for("the pool says that it is full", lambda: place.paused() == {"cloud-a": True})
    place.give_back(first)
    place.fulfilled(second)


def test_leaks_that_stay(place: Place) -> None:
    """port-cleanup-interval: 0 and clean-floating-ips: false (D-6, D-7): nobody asks for them."""
    place.section.update({"port-cleanup-interval": 0, "clean-floating-ips": False})
    place.launch()
    with place.simulator.cloud() as cloud:
        cloud.add_port(device_owner="compute:nova")
        cloud.add_floating_ip()
    for _ in range(3):
        place.provider.cleanupLeakedResources()
    assert (place.contents()["ports"], place.contents()["floating_ips"]) == (1, 1)
    assert place.calls("network.list_ports") == place.calls("network.list_floating_ips") == 0


# -- what is wrong with a label is said with provider, label and remedy, and hurts no other label


MANY = "x" * 70_000


@rows(__file__, "bad_labels")
def test_bad_label(place: Place, caplog: pytest.LogCaptureFixture, change: dict[str, Any], text: str) -> None:
    """The request fails soon, the other label of the pool is served, nothing is left."""
    place.section["cloud-images"] += [{"name": "gone"}, {"name": "gone-id", "image-id": "0000"}]
    place.pool["labels"].append({**place.label, "name": "good"})
    place.label.update({key: MANY if value == "many" else value for key, value in change.items()})
    for key in [key for key, value in change.items() if value is None]:
        del place.label[key]
    check(place, caplog, text)


@rows(__file__, "bad_pools")
def test_bad_pool(place: Place, caplog: pytest.LogCaptureFixture, change: dict[str, Any], text: str) -> None:
    """The same of what a pool has for all of its labels; another pool of the provider serves."""
    good = {"name": "second", "networks": ["provider"], "labels": [{**place.label, "name": "good"}]}
    place.section["pools"].append(good)
    place.pool.update(change)
    check(place, caplog, text)


def check(place: Place, caplog: pytest.LogCaptureFixture, text: str) -> None:
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    place.serve("good")
    place.wait_empty()
    wanted = [part for part in text.split("{}") if part]
    errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
    told = [line for line in (record.getMessage() for record in errors) if all(part in line for part in wanted)]
    assert told, [record.getMessage() for record in errors]
    assert all("rovider cloud-a, label small: " in line or "rovider cloud-a: label small " in line for line in told)
    assert not [record for record in errors if record.exc_info]
    assert "exceed quota" not in caplog.text, "that is another trouble"
    assert MANY[:100] not in caplog.text
    assert place.paused() == {"cloud-a": False}


def test_what_was_missing_is_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flavor and image come later: the label is served without a restart or a touched file."""
    monkeypatch.setattr(statemachine, "NEED_AGE_SECONDS", 0.3)
    monkeypatch.setattr(statemachine, "AGE_SECONDS", 0.3)
    monkeypatch.setattr(cloud_module, "REFUSAL_AGE_SECONDS", 0.1)
    place.section["cloud-images"].append({**place.section["cloud-images"][0], "name": "late", "image-name": "late"})
    place.label.update({"flavor-name": "late"})
    del place.label["min-ram"]
    place.pool["labels"].append({**place.label, "name": "by-image", "flavor-name": "small", "cloud-image": "late"})
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    place.failed(place.znodes.submit(["by-image"]))
    with place.simulator.cloud() as cloud:
        cloud.add_flavor("99", "late", 1, 1024, 10)
        cloud.images.add_active("late")
    # As if the five minutes were over for which an image that is missing is not looked for (O-7).
    place.adapter.cloud.facts.clear()
    wait_for("the flavor is noticed", lambda: serves(place, "small"))
    wait_for("the image is noticed", lambda: serves(place, "by-image"))
    place.wait_empty()


def serves(place: Place, label: str) -> bool:
    """Does a request for it work by now?"""
    request = place.znodes.submit([label])
    state = wait_for("it ends", lambda: place.ended(request))
    if state == "fulfilled":
        place.give_back(request)
    return state == "fulfilled"


# -- the circuit breaker of a provider that keeps failing: who sees it, and what becomes of its requests (F-5)


def test_rest(
    statsd: StatsdServer,
    place: Place,
    neighbour: OpenStackSimulator,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Registry, log and metrics tell; requests go to another provider with the label, or wait; then all goes on."""
    caplog.set_level("INFO")
    monkeypatch.setattr(status, "INTERNALS_SECONDS", 1.0)
    both: dict[str, Any] = {**place.label, "name": "both"}
    place.pool["labels"].append(both)
    second = place.others[0]
    second["priority"] = 200
    second["pools"][0]["labels"].append(both)
    place.launch()
    is_open = f"nodepool.launcher.{socket.gethostname()}.provider.cloud-a.circuit_open"
    statsd.wait_for(f"{is_open}:0|g")
    (node,) = place.fulfilled(place.znodes.submit(["both"]))
    assert node["provider"] == "cloud-a", "its priority is better"

    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    waits = place.znodes.submit(["small"])
    wait_for("the registry says so", lambda: place.paused() == {"cloud-a": True, "cloud-b": False})
    assert "Provider cloud-a keeps failing (" in caplog.text
    assert "Its circuit breaker opens: no new launches until it answers again" in caplog.text
    assert present(place.provider.pausedReason()).startswith("the circuit breaker is open: ")
    statsd.wait_for(f"{is_open}:1|g")
    statsd.wait_for("nodepool.provider.cloud-a.circuit_opened:1|c")
    statsd.lines.clear()
    statsd.wait_for(f"{is_open}:1|g")
    (node,) = place.fulfilled(place.znodes.submit(["both"]))
    assert node["provider"] == "cloud-b"
    assert place.znodes.request_state(waits) in ("requested", "pending")
    assert (place.znodes.request(waits) or {})["declined_by"] == []

    statsd.lines.clear()
    place.simulator.change(errors=[])
    place.fulfilled(waits)
    wait_for("the registry says so", lambda: place.paused() == {"cloud-a": False, "cloud-b": False})
    assert "Provider cloud-a answers again, launches go on" in caplog.text
    statsd.wait_for(f"{is_open}:0|g")
    (node,) = place.fulfilled(place.znodes.submit(["both"]))
    assert node["provider"] == "cloud-a"


# -- a cloud that cannot be used, or talks nonsense: it is said why, and nobody else is affected


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "RETRY", Backoff(0.2, 0.5))
    monkeypatch.setattr(fact, "ERROR_SECONDS", 0.3)
    monkeypatch.setattr(instance, "SAFETY_SECONDS", 1.0)
    monkeypatch.setattr(deletion, "RETRY", Backoff(0.1, 0.4))
    monkeypatch.setattr(inventory, "RETRY", Backoff(0.2, 0.5))
    monkeypatch.setattr(retries, "TRIP_SECONDS", 0.5)
    monkeypatch.setattr(retries, "PROBE", Backoff(0.3, 0.6))


def no_traceback(caplog: pytest.LogCaptureFixture) -> bool:
    return not [record.getMessage() for record in caplog.records if record.exc_info]


def change(place: Place, **settings: Any) -> None:
    """Change settings of the cloud in clouds.yaml; those with None go. ``auth`` is merged."""
    entry = dict(place.clouds["simulator"])
    auth = {**entry["auth"], **settings.pop("auth", {})}
    entry = {**entry, **settings, "auth": auth}
    for part in (entry, auth):
        for key in [key for key, value in part.items() if value is None]:
            del part[key]
    place.write_clouds(simulator=entry)


@pytest.mark.usefixtures("short_pauses")
@rows(__file__, "clouds_yaml_at_the_start")
def test_clouds_yaml_at_the_start(
    place: Place, neighbour: OpenStackSimulator, caplog: pytest.LogCaptureFixture, content: Any, text: str
) -> None:
    """G-9, G-10: the provider is absent, its requests fail at once; mended, it comes without a restart."""
    good = place.clouds_file.read_text(encoding="utf-8")
    alone = isinstance(content, dict)
    if isinstance(content, dict):
        change(place, auth=content)
    elif content is None:
        place.clouds_file.unlink()
    else:
        place.clouds_file.write_text(content, encoding="utf-8")
    place.launch()
    if alone:
        place.fulfilled(place.znodes.submit(["other"]))
        place.failed(place.znodes.submit(["small"]))
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(
        line.startswith("Provider cloud-a cannot be started, trying again in") and text in line for line in lines
    )
    assert no_traceback(caplog)
    assert "secret" not in caplog.text
    place.clouds_file.write_text(good, encoding="utf-8")
    wait_for("the provider serves", lambda: "cloud-a" in {pool["provider_name"] for pool in place.znodes.pools()})
    place.serve()
    wait_for("nothing is left", lambda: place.contents()["servers"] == 0)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("content", ["clouds: [", "clouds: {}", None], ids=["no YAML", "empty", "missing"])
def test_clouds_yaml_breaks_while_it_is_used(
    place: Place, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    """G-8: what it said before counts, and nothing is interrupted, whatever else is changed meanwhile."""
    place.launch()
    before = place.provider
    if content is None:
        place.clouds_file.unlink()
    else:
        place.clouds_file.write_text(content, encoding="utf-8")
    wait_for("it is told", lambda: "Provider cloud-a keeps its earlier settings: " in caplog.text)
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    assert place.provider is before
    place.section["launch-retries"] = 2
    place.rewrite()
    wait_for("the other change is there", lambda: place.provider is not before)
    place.give_back(request)
    place.serve()
    place.wait_empty()
    assert no_traceback(caplog)


@pytest.mark.usefixtures("short_pauses")
@rows(__file__, "wrong_places")
def test_wrong_place(
    place: Place, neighbour: OpenStackSimulator, caplog: pytest.LogCaptureFixture, settings: Any, text: str
) -> None:
    """A wrong region, interface, address or password: requests wait or go to others; the remedy is in the log."""
    change(place, **settings)
    place.launch()
    request = place.znodes.submit(["small"])
    place.fulfilled(place.znodes.submit(["other"]))
    wait_for("the circuit breaker opens", lambda: place.paused() == {"cloud-a": True, "cloud-b": False})
    assert text in caplog.text
    place.write_clouds()
    place.fulfilled(request)
    place.give_back(request)
    wait_for("nothing is left", lambda: place.contents()["servers"] == 0)
    assert no_traceback(caplog)
    assert not [word for word in ("secret", "changed") if f"{word}'" in caplog.text]
