# SPDX-License-Identifier: Apache-2.0
"""Whatever a cloud answers, the driver's calls return something usable or raise an error of their own (bad input)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack.adapter import OpenStackAdapter
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.transport import CloudAnswer
from nodepool.driver.openstack.views import Port, Server, limit
from nodepool.exceptions import LaunchError
from tests.unit.driver.openstack.support import LOG, StubTransport, load, section

PORT = Port("p1", "n1", "ACTIVE", "", "s1", ())
#: Each call, and the key of the answer that it reads; "" = the answer itself.
CALLS: dict[str, tuple[str, Callable[[Api], Any]]] = {
    "servers": ("servers", Api.servers),
    "server": ("server", lambda api: api.server("s1")),
    "create_server": ("server", lambda api: api.create_server({})),
    "console": ("output", lambda api: api.console("s1")),
    "flavors": ("flavors", Api.flavors),
    "flavor": ("flavor", lambda api: api.flavor("f1")),
    "zones": ("availabilityZoneInfo", Api.zones),
    "compute_limits": ("limits", Api.compute_limits),
    "networks": ("networks", Api.networks),
    "ports": ("ports", Api.ports),
    "floating_ips": ("floatingips", Api.floating_ips),
    "create_floating_ip": ("floatingip", lambda api: api.create_floating_ip("n1", PORT, "10.0.0.1", "note")),
    "volumes": ("volumes", Api.volumes),
    "images": ("images", Api.images),
    "image": ("", lambda api: api.image("i1")),
    "create_image": ("", lambda api: api.create_image({})),
}
#: Keys of things, so that odd values get where they hurt.
KEYS = st.sampled_from(
    [
        *(
            "id",
            "name",
            "status",
            "addresses",
            "addr",
            "metadata",
            "fault",
            "updated",
            "fixed_ips",
            "flavor",
            "absolute",
        ),
        *("zoneName", "zoneState", "next", "servers_links", "href", "rel", "os-extended-volumes:volumes_attached"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ODD = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


class OddTransport:
    """Answers everything with the same thing."""

    provider = "cloud-a"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def has(self, service: str) -> bool:
        return True

    def call(self, *_: object, **__: object) -> CloudAnswer:
        return CloudAnswer(200, self.answer, {})


@pytest.mark.parametrize("name", list(CALLS))
@settings(max_examples=40, deadline=None)
@given(value=ODD, where=st.sampled_from(["alone", "inside", "listed"]))
def test_any_answer(name: str, value: Any, where: str) -> None:
    """No KeyError, no TypeError, no endless loop."""
    key, call = CALLS[name]
    inside = {"alone": value, "inside": {key: value}, "listed": {key: [value]}}[where]
    transport: Any = OddTransport(inside)
    with contextlib.suppress(LaunchError):
        call(Api(transport))


@pytest.mark.parametrize("answer", [{}, {"server": {}}, {"server": {"id": None}}, {"server": {"id": {}}}, [], None, 7])
def test_creation_without_an_id(answer: Any) -> None:
    """There may be a server all the same, and it must be looked for."""
    transport: Any = OddTransport(answer)
    with pytest.raises(CloudAway) as caught:
        Api(transport).create_server({})
    assert caught.value.maybe_done


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (5, 5),
        (0, 0),
        (-1, math.inf),
        (None, math.inf),
        ("10", 10),
        ("ten", math.inf),
        (True, math.inf),
        (math.nan, math.inf),
    ],
)
def test_limit(value: Any, wanted: float) -> None:
    """A limit that makes no sense is none: a quota error of the cloud will show it."""
    assert limit(value) == wanted


HOSTILE = st.sampled_from(
    ["10.0.0.1\nh ssh-rsa AAAA", "10.0.0.1 x", "host.example.org", "::1", "10.0.0.9", "\ud800", ""]
)
ODD_SERVERS = st.fixed_dictionaries(
    {"id": st.just("s1")},
    optional={
        "accessIPv4": ODD | HOSTILE,
        "accessIPv6": ODD | HOSTILE,
        "hostId": ODD,
        "OS-EXT-AZ:availability_zone": ODD,
        "addresses": st.dictionaries(
            st.text(max_size=3), st.lists(st.fixed_dictionaries({"addr": ODD | HOSTILE, "version": ODD}), max_size=2)
        ),
    },
)


@given(ODD_SERVERS)
def test_what_goes_into_a_node(data: dict[str, Any]) -> None:
    """L-13, reference/zookeeper 5: texts where a record must have them, and addresses: Zuul writes files with them."""
    found = Server.of(data)
    for address in (found.access_ipv4, found.access_ipv6, *(address.ip for address in found.addresses)):
        assert set(address) <= set("0123456789abcdefABCDEF:.")
    assert isinstance(found.az, str | None)
    assert isinstance(found.host_id, str | None)


@pytest.mark.parametrize("external_id", [{"a": 1}, ["s1"], 7, True])
def test_deletion_of_a_node_with_an_odd_server(external_id: Any) -> None:
    """reference/zookeeper 5: ``external_id`` is what somebody stored. There is nothing to delete; leaks are found."""
    config, _ = load(section())
    adapter = OpenStackAdapter(config, StubTransport())  # type: ignore[arg-type]
    machine = adapter.getDeleteStateMachine(external_id, LOG)
    machine.advance()
    assert machine.complete
    adapter.stop()
