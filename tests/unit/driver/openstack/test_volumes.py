# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.cloud` (rules O-6, D-2, D-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.openstack.adapter import OLD_VOLUMES_SECONDS, Leaks, ServerDeletion
from tests.unit.driver.openstack.support import LOG, METADATA, StubCloud, label_section, server

MARK = ("POST", "/volumes/v1/metadata")
DELETION = ("DELETE", "/servers/s1")


def with_volumes(*volume_ids: str, **more: Any) -> dict[str, Any]:
    """A server that boots from a volume: it has no image."""
    attached = [{"id": volume_id} for volume_id in volume_ids]
    return server("s1", "ACTIVE", image="", **{"os-extended-volumes:volumes_attached": attached}, **more)


def left_volume(**metadata: str) -> dict[str, Any]:
    return {"id": "v1", "metadata": metadata, "attachments": []}


@pytest.fixture
def cloud(make_cloud: Callable[..., StubCloud]) -> StubCloud:
    cloud = make_cloud(label_section(**{"boot-from-volume": True}))
    cloud.stub.answers[MARK] = {}
    cloud.stub.answers["GET", "/volumes/detail"] = {"volumes": []}
    return cloud


def test_before_the_server_goes(cloud: StubCloud) -> None:
    """Its launcher died before it could mark the volume, or the cloud did not let it."""
    cloud.show(with_volumes("v1"))
    ServerDeletion(cloud, "s1", LOG, cloud.clock).advance()
    assert [call for call in cloud.stub.calls if call in (MARK, DELETION)] == [MARK, DELETION]
    assert {"metadata": METADATA} in cloud.stub.bodies


def test_a_server_that_is_in_no_list(cloud: StubCloud) -> None:
    """After a restart nothing is known of it."""
    cloud.stub.answers["GET", "/servers/s1"] = {"server": with_volumes("v1")}
    cloud.delete_instance("s1")
    assert (cloud.stub.count(*MARK), cloud.stub.count(*DELETION)) == (1, 1)


def test_a_server_that_seems_to_be_gone(cloud: StubCloud) -> None:
    """Only the answer to the order of the deletion counts."""
    cloud.delete_instance("s1")
    assert (cloud.stub.count(*MARK), cloud.stub.count(*DELETION)) == (0, 1)


def test_once(cloud: StubCloud) -> None:
    cloud.volumes.begin(["v1"], METADATA)
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    assert cloud.stub.count(*MARK) == 1


def test_not_known_yet(cloud: StubCloud) -> None:
    """404 right after Nova made it: it is marked before its server is deleted, not taken for marked."""
    cloud.stub.answers[MARK] = CloudNotFound("404", 404)
    cloud.volumes.begin(["v1"], METADATA)
    cloud.stub.answers[MARK] = {}
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    assert cloud.stub.count(*MARK) == 2


def test_trouble_does_not_keep_the_server(cloud: StubCloud) -> None:
    """It is marked later, also when the server is gone; then it is found as a left over one."""
    cloud.stub.answers[MARK] = CloudAway("503")
    cloud.volumes.begin(["v1"], METADATA)
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    assert cloud.stub.count(*DELETION) == 1
    cloud.show()
    sweep = Leaks(cloud, cloud.clock)
    assert sweep.suspected()
    cloud.stub.answers[MARK] = {}
    cloud.stub.answers["GET", "/volumes/detail"] = lambda body, query: {"volumes": [left_volume(**METADATA)]}
    (found,) = sweep.resources()
    assert (found.type, found.metadata) == ("volume", METADATA)
    assert not cloud.volumes.open


def test_volumes_that_cannot_be_listed(cloud: StubCloud, caplog: pytest.LogCaptureFixture) -> None:
    """D-2: servers are found all the same."""
    cloud.show(with_volumes("v1"))
    cloud.stub.answers["GET", "/volumes/detail"] = CloudRefused("no Cinder", 503)
    sweep = Leaks(cloud, cloud.clock)
    for _ in range(2):
        assert [found.type for found in sweep.resources()] == ["instance"]
    assert caplog.text.count("resources of kind volume cannot be listed: no Cinder") == 1


def test_not_possible_now(cloud: StubCloud) -> None:
    """cinder.volume.api.API._update_volume_metadata refuses it for volumes in ``maintenance`` and ``uploading``."""
    cloud.stub.answers[MARK] = CloudRefused("Updating volume metadata is not allowed", 400)
    cloud.volumes.begin(["v1"], METADATA)
    cloud.stub.answers[MARK] = {}
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    assert cloud.stub.count(*MARK) == 2


def test_refused(cloud: StubCloud, caplog: pytest.LogCaptureFixture) -> None:
    """Then it stays as it is; nothing is tried over and over."""
    cloud.stub.answers[MARK] = CloudRefused("403", 403)
    cloud.volumes.begin(["v1"], METADATA)
    list(Leaks(cloud, cloud.clock).resources())
    assert cloud.stub.count(*MARK) == 1
    assert "volume v1 is not marked as ours" in caplog.text


def test_the_search_for_leaks_marks_what_nobody_has(cloud: StubCloud) -> None:
    cloud.stub.answers["GET", "/servers/detail"] = {"servers": [with_volumes("v1")]}
    attached = {"id": "v1", "metadata": {}, "attachments": [{"server_id": "s1"}]}
    cloud.stub.answers["GET", "/volumes/detail"] = {"volumes": [attached]}
    list(Leaks(cloud, cloud.clock).resources())
    assert cloud.stub.count(*MARK) == 1


@pytest.mark.parametrize(
    "other",
    [
        with_volumes("v1", "v2"),
        {**with_volumes("v1"), "image": {"id": "i1"}},
        {**with_volumes("v1"), "metadata": {**METADATA, "nodepool_provider_name": "other"}},
        {**with_volumes("v1"), "metadata": {}},
    ],
)
def test_volumes_of_others_are_not_touched(cloud: StubCloud, other: dict[str, Any]) -> None:
    """D-4: somebody may have attached one by hand, which must not go; nor are servers of others ours."""
    cloud.stub.answers["GET", "/volumes/detail"] = {"volumes": [{"id": "v1"}, {"id": "v2"}]}
    cloud.show(other)
    list(Leaks(cloud, cloud.clock).resources())
    cloud.delete_instance("s1")
    assert [path for method, path in cloud.stub.calls if method == "POST"] == []


LIST = ("GET", "/volumes/detail")


@pytest.fixture
def dropped(make_cloud: Callable[..., StubCloud]) -> StubCloud:
    """No label needs volumes any more."""
    cloud = make_cloud(label_section())
    cloud.stub.answers[LIST] = {"volumes": []}
    return cloud


def test_volumes_of_labels_that_are_gone(dropped: StubCloud) -> None:
    """D-2: what their servers left is still found, in two looks in a row; for nothing nobody looks often."""
    sweep = Leaks(dropped, dropped.clock)
    assert list(sweep.resources()) == []
    list(sweep.resources())
    assert dropped.stub.count(*LIST) == 1
    dropped.clock.now += OLD_VOLUMES_SECONDS
    dropped.stub.answers[LIST] = {"volumes": [left_volume(**METADATA)]}
    for _ in range(2):
        (found,) = sweep.resources()
        assert (found.type, found.metadata) == ("volume", METADATA)
    dropped.stub.answers["DELETE", "/volumes/v1"] = {}
    sweep.delete(found)
    dropped.stub.answers[LIST] = {"volumes": []}
    for _ in range(3):
        assert list(sweep.resources()) == []
    assert dropped.stub.count(*LIST) == 4


def test_volumes_of_others_are_no_reason_to_look_often(dropped: StubCloud) -> None:
    others = left_volume(**{**METADATA, "nodepool_provider_name": "other"})
    dropped.stub.answers[LIST] = {"volumes": [others]}
    sweep = Leaks(dropped, dropped.clock)
    for _ in range(3):
        list(sweep.resources())
    assert dropped.stub.count(*LIST) == 1


@pytest.mark.parametrize("trouble", [CloudRefused("403", 403), CloudAway("503")])
def test_volumes_that_cannot_be_looked_for(dropped: StubCloud, trouble: Exception) -> None:
    """They are not needed: the search goes on without."""
    dropped.stub.answers[LIST] = trouble
    dropped.stub.answers["GET", "/servers/detail"] = {"servers": [with_volumes("v1")]}
    (found,) = Leaks(dropped, dropped.clock).resources()
    assert found.type == "instance"


def test_a_server_of_a_label_that_is_gone(dropped: StubCloud) -> None:
    """Its volume says whose it is before the server goes; if that does not work now, it is done later."""
    dropped.show(with_volumes("v1"))
    dropped.stub.answers[MARK] = CloudAway("503")
    sweep = Leaks(dropped, dropped.clock)
    list(sweep.resources())
    dropped.delete_instance("s1")
    assert dropped.stub.count(*MARK) == 1
    assert sweep.suspected()
    dropped.stub.answers[MARK] = {}
    list(sweep.resources())
    assert dropped.stub.count(*MARK) == 2
    assert not sweep.suspected()
