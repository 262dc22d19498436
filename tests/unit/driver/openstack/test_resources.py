# SPDX-License-Identifier: Apache-2.0
"""Images, volumes, ports and addresses (rules U, D, O): what arrived, what is left over, and whose it is.

Uploads and deletions of images are tested in ``tests/integration/test_openstack_uploads.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.openstack.api import Image
from nodepool.driver.openstack.images import Content, wrong
from nodepool.driver.openstack.servers import OLD_VOLUMES_SECONDS, Leaks
from tests.support.tables import driver_table
from tests.unit.driver.openstack.support import METADATA, StubCloud, answer_of, label_section, server

MakeCloud = Callable[..., StubCloud]

# -- images --

SMALL = b"x" * 1000
SUMS = {name: hashlib.new(name, SMALL).hexdigest() for name in ("md5", "sha256", "sha512")}


@pytest.mark.parametrize(("shown", "known", "text"), driver_table("openstack", "stored_images"))
def test_stored_images(tmp_path: Path, shown: dict[str, Any], known: list[str] | None, text: str | None) -> None:
    """U-14, O-16: size and checksum are compared with what the cloud says it has."""
    path = tmp_path / "file"
    path.write_bytes(SMALL)
    image = {key: value.format(**SUMS) if isinstance(value, str) else value for key, value in shown.items()}
    sent_format = "qcow2" if known is None else "raw"
    with path.open("rb") as file:
        found = wrong(Image({"id": "i1", **image}), sent_format, Content(file), {key: SUMS[key] for key in known or ()})
    assert found is None if text is None else str(found).startswith(text.format(**SUMS)), found


# -- what is left over --

MARK = ("POST", "/volumes/v1/metadata")
LIST = ("GET", "/volumes/detail")
OTHER = {**METADATA, "nodepool_provider_name": "other"}


def looked(sweep: Leaks) -> list[tuple[str, str]]:
    """What a look finds: kinds and ids."""
    return [(found.type, found.id) for found in sweep.kinds.all()]


def test_ports(make_cloud: MakeCloud) -> None:
    """D-5, D-6: DOWN in two checks that are far enough apart, of Nova or without an owner, and of no new server."""
    cloud = make_cloud(**{"port-cleanup-interval": 600})
    shown = {"status": "DOWN", "device_owner": "compute:nova", "device_id": "old"}
    ports: dict[str, dict[str, Any]] = {
        "leaked": {},
        "unowned": {"device_owner": "", "device_id": ""},
        "stubborn": {},
        "absent": {},
        "router": {"device_owner": "network:router_interface"},
        "up": {"status": "ACTIVE"},
        "booting": {"device_id": "s1"},
    }
    cloud.stub.answers["GET", "/ports"] = {"ports": [{"id": key, **shown, **more} for key, more in ports.items()]}
    cloud.stub.answers["GET", "/servers/detail"] = {"servers": [server("s1")]}
    cloud.stub.answers |= {("DELETE", f"/ports/{key}"): {} for key in ("leaked", "unowned")}
    cloud.stub.answers["DELETE", "/ports/stubborn"] = CloudRefused("in use", 409)
    sweep = Leaks(cloud)
    for seconds, deleted in ((0, []), (599, []), (2, ["absent", "leaked", "stubborn", "unowned"])):
        cloud.clock.now += seconds
        assert looked(sweep) == [("instance", "s1")]
        assert cloud.stub.sent("DELETE") == [f"/ports/{key}" for key in deleted]
        assert not sweep.suspected(), "the interval is longer than the pause to the next look"
    # What was seen once is not deleted, nor is anything while the cloud is away.
    cloud.stub.answers["GET", "/ports"] = [{"ports": [{"id": "new", **shown}]}, CloudAway("500"), {"ports": []}]
    for _ in range(3):
        cloud.clock.now += 601
        assert looked(sweep) == [("instance", "s1")]
    assert len(cloud.stub.sent("DELETE")) == 4


def test_resources(make_cloud: MakeCloud) -> None:
    """D-4: volumes that are not in use, with their metadata; the framework decides."""
    cloud = make_cloud(label_section(**{"boot-from-volume": True}))
    free = {"metadata": METADATA, "attachments": []}
    volumes = [{"id": "v1", **free}, {"id": "v2", **free, "attachments": [{"server_id": "s"}]}, {"id": "v3"}]
    cloud.stub.answers[LIST] = {"volumes": [*volumes, {"id": "v4", **free, "status": "deleting"}]}
    sweep = Leaks(cloud)
    (volume,) = sweep.kinds.all()
    assert volume.metadata.items() >= METADATA.items()
    cloud.stub.answers["DELETE", "/volumes/v1"] = {}
    sweep.kinds.delete(volume)
    assert cloud.stub.sent("DELETE") == ["/volumes/v1"]


# -- volumes --


def with_volumes(*volume_ids: str, **more: Any) -> dict[str, Any]:
    """A server that boots from a volume: it has no image."""
    attached = [{"id": volume_id} for volume_id in volume_ids]
    return server("s1", "ACTIVE", **{"image": "", "os-extended-volumes:volumes_attached": attached, **more})


@pytest.fixture(params=[True, False])
def cloud(request: pytest.FixtureRequest, make_cloud: MakeCloud) -> StubCloud:
    """With a label that needs volumes, and with none any more."""
    made = make_cloud(label_section(**({"boot-from-volume": True} if request.param else {})))
    made.stub.answers |= {MARK: {}, LIST: {"volumes": []}}
    return made


@pytest.mark.parametrize(("first", "marks"), driver_table("openstack", "marks"))
def test_marks(cloud: StubCloud, first: Any, marks: int) -> None:
    """O-6: it is marked before its server is deleted, unless that was done; once."""
    if first is not None:
        cloud.stub.answers[MARK] = answer_of(first)
        cloud.volumes.begin(["v1"], METADATA)
        cloud.stub.answers[MARK] = {}
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    sent = [call for call in cloud.stub.calls if call[0] in ("POST", "DELETE")]
    assert sent == [*[MARK] * marks, ("DELETE", "/servers/s1")]
    assert {"metadata": METADATA} in cloud.stub.bodies


@pytest.mark.parametrize(
    ("shown", "marks"),
    [
        (with_volumes("v1"), 1),
        # D-4: one may have been attached by hand, which must not go; nor are servers of others ours.
        (with_volumes("v1", "v2"), 0),
        (with_volumes("v1", image={"id": "i1"}), 0),
        (with_volumes("v1", metadata=OTHER), 0),
    ],
)
def test_the_search_marks_what_was_not_marked(cloud: StubCloud, shown: dict[str, Any], marks: int) -> None:
    """O-6, D-4"""
    cloud.stub.answers[LIST] = {"volumes": [{"id": one, "attachments": [{"id": "a"}]} for one in ("v1", "v2")]}
    cloud.show(shown)
    list(Leaks(cloud).kinds.all())
    cloud.delete_instance("s1")
    assert len(cloud.stub.sent("POST")) == marks


def test_volume_that_outlives_its_server(cloud: StubCloud) -> None:
    """D-2: the cloud was away when it was to be marked. Without the mark it would stay for ever."""
    cloud.stub.answers[MARK] = CloudAway("503")
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    cloud.show()
    cloud.stub.answers[MARK] = {}
    sweep = Leaks(cloud)
    for _ in range(2):
        cloud.clock.now += OLD_VOLUMES_SECONDS
        list(sweep.kinds.all())
    assert len(cloud.stub.sent("POST")) == 2


@pytest.mark.parametrize(("answer", "ours", "lists"), driver_table("openstack", "earlier_volumes"))
def test_volumes_of_earlier_labels(make_cloud: MakeCloud, answer: Any, ours: bool, lists: int) -> None:
    """D-2: what their servers left is found, in two looks in a row; for nothing it is not looked for often."""
    cloud = make_cloud()
    cloud.stub.answers[LIST] = answer_of(answer)
    sweep = Leaks(cloud)
    for _ in range(3):
        list(sweep.kinds.all())
    cloud.clock.now += OLD_VOLUMES_SECONDS
    assert (("volume", "v1") in looked(sweep)) is ours
    assert cloud.stub.count(*LIST) == lists
