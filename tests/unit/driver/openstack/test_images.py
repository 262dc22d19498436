# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.images` (rules U-4, U-5, U-9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudQuota, CloudRefused, NotFoundByProxy
from nodepool.driver.openstack.adapter import OpenStackAdapter
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.images import OpenStackImages
from nodepool.exceptions import ImageCreateException, QuotaException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import StubTransport, load, section
from tests.unit.driver.openstack.test_image_upload import Stopped


class Glance(StubTransport):
    """Keeps what was uploaded."""

    def __init__(self, *states: str) -> None:
        super().__init__()
        self.received = b""
        self.made: dict[str, Any] = {}
        self.answers["POST", "/images"] = self.make
        self.answers["PUT", "/images/i9/file"] = self.take
        self.answers["GET", "/images/i9"] = [{"id": "i9", "status": state} for state in states or ("active",)]
        self.answers["DELETE", "/images/i9"] = {}

    def make(self, body: Any, query: Any) -> dict[str, Any]:
        self.made = body
        return {"id": "i9", "status": "queued"}

    def take(self, arguments: Any, query: Any) -> dict[str, Any]:
        self.received = b"".join(arguments["data"])
        return {}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "image.qcow2"
    path.write_bytes(b"x" * 3_000_000)
    return str(path)


def store(transport: StubTransport) -> OpenStackImages:
    clock = ManualClock()
    return OpenStackImages("cloud-a", Api(transport), Stopped(clock), clock)  # type: ignore[arg-type]


def test_upload(file: str) -> None:
    """The record, the data in pieces, and a wait until it can be used."""
    glance = Glance("saving", "importing", "active")
    properties = {"nodepool_upload_id": "7", "min_disk": "20", "hw_vif": True, "n": 3}
    assert store(glance).upload("name-1", file, "raw", properties, {}, 100) == "i9"
    assert glance.received == b"x" * 3_000_000
    assert glance.made == {
        "name": "name-1",
        "disk_format": "raw",
        "container_format": "bare",
        "visibility": "private",
        "nodepool_upload_id": "7",
        "min_disk": 20,
        "hw_vif": "true",
        "n": "3",
    }
    assert glance.count("DELETE", "/images/i9") == 0


def test_sent_again(file: str) -> None:
    """A request that is made again, after 429 or for a new token, has the whole content."""
    glance = Glance()

    def take(arguments: Any, query: Any) -> dict[str, Any]:
        assert next(iter(arguments["data"]))
        assert len(arguments["data"]) == 3_000_000
        return glance.take(arguments, query)

    glance.answers["PUT", "/images/i9/file"] = take
    store(glance).upload("name-1", file, "raw", {}, {}, 100)
    assert len(glance.received) == 3_000_000


def test_cut_off(file: str) -> None:
    """An image that arrived in part is no image."""
    glance = Glance()
    glance.answers["GET", "/images/i9"] = {"id": "i9", "status": "active", "size": 12}
    with pytest.raises(
        ImageCreateException, match="image name-1 did not arrive as it was sent: 12 of 3000000 bytes are"
    ):
        store(glance).upload("name-1", file, "raw", {}, {}, 100)
    assert glance.count("DELETE", "/images/i9") == 1


@pytest.mark.parametrize("states", [("saving",), ("killed",), ("deleted",)])
def test_not_usable(file: str, states: tuple[str, ...]) -> None:
    """U-9: an error, and nothing is left over."""
    glance = Glance(*states)
    with pytest.raises(ImageCreateException, match=r"Provider cloud-a: .*image name-1"):
        store(glance).upload("name-1", file, "raw", {}, {}, 100)
    assert glance.count("DELETE", "/images/i9") == 1


def test_error_while_uploading(file: str) -> None:
    glance = Glance("queued")
    glance.answers["PUT", "/images/i9/file"] = CloudAway("broken pipe")
    with pytest.raises(CloudAway, match="broken pipe"):
        store(glance).upload("name-1", file, "raw", {}, {}, 100)
    assert glance.count("DELETE", "/images/i9") == 1


def test_quota(file: str) -> None:
    glance = Glance()
    glance.answers["POST", "/images"] = CloudQuota("Quota exceeded", 413)
    with pytest.raises(QuotaException):
        store(glance).upload("name-1", file, "raw", {}, {}, 100)


def test_time_is_over_while_uploading(file: str) -> None:
    glance = Glance()
    with pytest.raises(ImageCreateException, match="took more than 0 s"):
        store(glance).upload("name-1", file, "raw", {}, {}, 0)
    assert glance.count("DELETE", "/images/i9") == 1


def test_no_file(tmp_path: Path) -> None:
    glance = Glance()
    with pytest.raises(FileNotFoundError):
        store(glance).upload("name-1", str(tmp_path / "none"), "raw", {}, {}, 100)
    assert glance.calls == []


def test_delete() -> None:
    """It waits until the image is gone; one that is gone is no error."""
    glance = Glance("active", "pending_delete")
    store(glance).delete("i9")
    store(glance).delete("unknown")
    glance.answers["GET", "/images/i9"] = [{"id": "i9", "status": "active"}]
    with pytest.raises(ImageCreateException, match="still there"):
        store(glance).delete("i9")


def test_delete_behind_a_proxy_that_answers_each_404() -> None:
    """Its page proves nothing; the list does."""
    glance = Glance("active")
    glance.answers["DELETE", "/images/i9"] = NotFoundByProxy("404")
    glance.answers["GET", "/images"] = {"images": [{"id": "i9", "status": "active"}]}
    with pytest.raises(NotFoundByProxy):
        store(glance).delete("i9")
    glance.answers["GET", "/images"] = {"images": [{"id": "i8", "status": "active"}]}
    store(glance).delete("i9")


def test_delete_one_in_use() -> None:
    """O-18: it is waited for a while, then it is an error that says so; who calls tries again."""
    glance = Glance("deleted")
    glance.answers["DELETE", "/images/i9"] = [CloudRefused("x", 409, "409 in use by a server")] * 3 + [{}]
    store(glance).delete("i9")
    glance.answers["DELETE", "/images/i9"] = CloudRefused("x", 409, "409 in use by a server")
    with pytest.raises(ImageCreateException, match="i9 cannot be deleted while it is in use: 409 in use by a server"):
        store(glance).delete("i9")


class Protected(Glance):
    """Its image is protected until somebody changes that.

    :param refusal: of whoever tries.
    """

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__()
        self.protected = True
        self.changes: list[Any] = []
        self.answers["GET", "/images/i9"] = lambda body, query: {"id": "i9", "status": "active", "protected": True}
        self.answers["DELETE", "/images/i9"] = self.remove
        self.answers["PATCH", "/images/i9"] = refusal or self.change

    def change(self, arguments: Any, query: Any) -> dict[str, Any]:
        self.changes.append(arguments["json"])
        self.protected = False
        return {}

    def remove(self, body: Any, query: Any) -> dict[str, Any]:
        if self.protected:
            raise CloudRefused("x", 403, "403 protected")
        raise CloudNotFound("gone", 404)


def test_delete_a_protected_one(caplog: pytest.LogCaptureFixture) -> None:
    """O-18: it is unprotected, and that is said."""
    glance = Protected()
    store(glance).delete("i9")
    assert glance.changes == [[{"op": "replace", "path": "/protected", "value": False}]]
    assert "image i9 is protected. It is unprotected" in caplog.text


def test_protection_stays() -> None:
    """O-18: what to do is said at once."""
    glance = Protected(CloudRefused("x", 403, "403 only for admins"))
    with pytest.raises(ImageCreateException, match="i9 is protected, and cannot be unprotected: 403 only for admins"):
        store(glance).delete("i9")
    assert glance.count("DELETE", "/images/i9") == 1
    assert glance.count("PATCH", "/images/i9") == 1


def test_deletion_is_refused() -> None:
    """An image that is not protected may be refused for other reasons."""
    glance = Glance("active")
    glance.answers["DELETE", "/images/i9"] = CloudRefused("not for you", 403)
    with pytest.raises(CloudRefused, match="not for you"):
        store(glance).delete("i9")


def test_list() -> None:
    """D-1: unfinished and hidden images of ours, whatever their status; no others."""
    glance = Glance()
    ids = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b", "nodepool_upload_id": "3", "min_disk": 5}
    listed = [
        {"id": "i1", "name": "one", "status": "active", **ids},
        {"id": "i2", "name": None, "status": "saving", "nodepool_build_id": "c"},
        {"id": "i3", "name": "debian", "status": "active"},
    ]
    hidden = [listed[0], {"id": "i4", "status": "active", "os_hidden": True, "nodepool_upload_id": "4"}]
    glance.answers["GET", "/images"] = lambda body, query: {"images": hidden if "os_hidden" in query else listed}
    found = list(store(glance).list())
    assert [(image.id, image.name) for image in found] == [("i1", "one"), ("i2", ""), ("i4", "")]
    assert {key: found[0].metadata[key] for key in ids if key != "min_disk"} == {
        key: value for key, value in ids.items() if key != "min_disk"
    }


def test_import_that_the_cloud_does_not_have(file: str) -> None:
    """O-16: it is said what it has, and what to change; nothing is made."""
    glance = Glance()
    for answer in ({"import-methods": {"value": ["web-download"]}}, {"import-methods": 7}, CloudNotFound("x", 404)):
        glance.answers["GET", "/info/import"] = answer
        with pytest.raises(
            ImageCreateException, match=r"does not import images with glance-direct .it has: (web-download|no method)"
        ):
            store(glance).upload("name-1", file, "raw", {}, {}, 100, by_import=True)
    assert glance.made == {}


def test_adapter(file: str) -> None:
    """reference/driver 9; U-4: metadata, then the provider's ``meta``, then what says whose it is; U-5: checksums."""
    config, _ = load(section(diskimages=[{"name": "fedora", "meta": {"a": "meta", "nodepool_build_id": "forged"}}]))
    glance = Glance()
    adapter = OpenStackAdapter(config, glance)  # type: ignore[arg-type]
    metadata = {"a": "image", "b": "image", "nodepool_build_id": "1"}
    found = adapter.uploadImage(config.diskimages["fedora"], "n", file, None, metadata, "m" * 32, "s" * 64)
    assert found == "i9"
    assert (glance.made["a"], glance.made["b"], glance.made["nodepool_build_id"]) == ("meta", "image", "1")
    assert glance.made["disk_format"] == "qcow2"
    assert glance.made["owner_specified.openstack.md5"] == "m" * 32
    assert glance.made["owner_specified.openstack.sha256"] == "s" * 64
    glance.answers["GET", "/images/i9"] = [{"id": "i9", "status": "deleted"}]
    adapter.deleteImage("i9")
    adapter.stop()
