# SPDX-License-Identifier: Apache-2.0
"""Images, volumes, ports and addresses (rules U, D, O): uploads and deletions, what is left over, and whose it is."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    LoginRefused,
    NotFoundByProxy,
)
from nodepool.driver.openstack.adapter import OLD_VOLUMES_SECONDS, Leaks
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.images import Content, OpenStackImages, api_properties, wrong
from nodepool.driver.openstack.views import Image
from nodepool.exceptions import ImageCreateException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import METADATA, Stopped, StubCloud, StubTransport, label_section, server

DATA = b"0123456789" * 300_000
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
IDS = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "7"}
AWAY = CloudAway("the connection broke")
ABSENT = CloudNotFound("absent", 404)
Trouble = dict[str, list[Any]]


class Glance(StubTransport):
    """Images with memory.

    :param troubles: what the next calls of a kind (``create``, ``put``, ``import``, ``get``, ``delete``) raise; None =
        all is well; a text = the status of the image after a call that breaks off; False = the answer is lost.
    :param states: that images seem to have at first. ``imported``: what an import makes of an image.
    """

    def __init__(self, troubles: Trouble | None = None, states: tuple[str, ...] = (), **imported: Any) -> None:
        super().__init__()
        self.images: dict[str, dict[str, Any]] = {}
        self.troubles = troubles or {}
        self.states, self.imported = list(states), imported
        self.ids = itertools.count(1)
        self.done: list[str] = []
        self.answers["POST", "/images"] = self.create
        self.answers["GET", "/images"] = lambda body, query: {"images": list(self.images.values())}
        self.answers["GET", "/info/import"] = {"import-methods": {"value": ["glance-direct"]}}
        clock = ManualClock()
        self.stopped = self.waiting = Stopped(clock)
        self.store = OpenStackImages("cloud-a", Api(self), self.stopped, clock)  # type: ignore[arg-type]

    def answer(self, kind: str, image: dict[str, Any], do: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(body: Any, query: Any) -> Any:
            trouble = (self.troubles.get(kind) or [None]).pop(0)
            if kind in ("put", "delete"):
                self.done.append(f"{kind} {image['id']}")
            if isinstance(trouble, Exception):
                raise trouble
            if isinstance(trouble, str):
                image["status"] = trouble
            found = None if isinstance(trouble, str) else do(body)
            if trouble is not None:
                raise AWAY
            return found

        return answer

    def create(self, body: Any, query: Any) -> Any:
        image = {"id": f"i{next(self.ids)}", "status": "queued", **body}
        path = f"/images/{image['id']}"

        def put(status: str) -> Callable[[Any], None]:
            def put(arguments: Any) -> None:
                data = b"".join(arguments["data"])
                checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
                image.update({"size": len(data), "checksum": checksum, "status": status})

            return put

        def get(_: Any) -> dict[str, Any]:
            return {**image, "status": self.states.pop(0)} if self.states else image

        self.answers |= {
            ("PUT", f"{path}/file"): self.answer("put", image, put("active")),
            ("PUT", f"{path}/stage"): self.answer("put", image, put("uploading")),
            ("POST", f"{path}/import"): self.answer("import", image, lambda _: image.update(self.imported)),
            ("GET", path): self.answer("get", image, get),
            ("DELETE", path): self.answer("delete", image, lambda _: self.images.pop(image["id"])),
            ("PATCH", path): self.answer("patch", image, lambda body: image.update(protected=body["json"][0]["value"])),
        }
        return self.answer("create", image, lambda _: self.images.setdefault(image["id"], image))(body, query)

    def upload(self, file: Path, by_import: bool = False, **more: Any) -> str:
        return self.store.upload("name-1", str(file), "raw", {**IDS, **more}, {"md5": MD5}, 1000, by_import)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image.raw"
    path.write_bytes(DATA)
    return path


ACTIVE: dict[str, Any] = {"status": "active"}
SLOW: dict[str, Any] = {"os_glance_failed_import": "one", "os_glance_importing_to_stores": "another"}
PATIENT = {"get": [*[AWAY, AWAY, None] * 4, *[None] * 20]}
TWICE = ["put i1", "delete i1", "put i2"]


@pytest.mark.parametrize(
    ("glance", "by_import", "done"),
    [
        (Glance(None, ("saving", "importing")), False, ["put i1"]),
        # An image that waits for its data again gets them once more.
        (Glance({"put": ["queued", "queued"]}), False, ["put i1"] * 3),
        # 409: the cloud has not noticed yet that the attempt before broke off.
        (Glance({"put": [CloudRefused("409 saving", 409)]}), False, ["put i1"] * 2),
        # So long as the cloud does not say what became of the image, it is asked again.
        (Glance({"put": ["queued"], "get": [AWAY, AWAY]}), False, ["put i1"] * 2),
        # One that waits for no data any more is deleted, and another one is made.
        *((Glance({"put": [status]}), False, TWICE) for status in ("saving", "killed", "deactivated")),
        (Glance({"put": ["killed"], "delete": [AWAY, AWAY]}), False, ["put i1", *["delete i1"] * 3, "put i2"]),
        # What a call without an answer did is found, and not done twice. Staged data may lack a part.
        (Glance({"create": [False]}), False, ["put i1"]),
        (Glance({"create": [AWAY]}), False, ["put i2"]),
        (Glance({"put": [False]}, ("saving",) * 12), False, ["put i1"]),
        (Glance({"put": [False]}, **ACTIVE), True, TWICE),
        (Glance({"import": [False]}, **ACTIVE), True, ["put i1"]),
        # O-16: an import takes long, as long as no store has failed for good, and goes on while the cloud is away.
        (Glance(None, ("importing",) * 20, **ACTIVE, **SLOW), True, ["put i1"]),
        (Glance(PATIENT, ("importing",) * 20, **ACTIVE), True, ["put i1"]),
        # An image that the cloud converted has another checksum.
        (Glance(**ACTIVE, disk_format="qcow2", size=5, checksum="other"), True, ["put i1"]),
    ],
)
def test_upload(file: Path, glance: Glance, by_import: bool, done: list[str]) -> None:
    """O-15, O-16, O-18: it arrives whole, whatever breaks off, and nothing else is left; it is protected in the end.

    An image of another upload with the same name is not ours.
    """
    other = glance.images["other"] = {"id": "other", "status": "queued", "name": "name-1", "nodepool_upload_id": "6"}
    found = glance.upload(file, by_import, min_disk="20", protected="True")
    assert "protected" not in glance.body("POST", "/images")
    image = glance.images[found]
    assert (list(glance.images.values()), glance.done) == ([other, image], done)
    assert (image["visibility"], image["min_disk"], image["protected"]) == ("private", 20, True)
    assert sum(glance.waiting.pauses) >= len(glance.sent("PUT")) - 1


@pytest.mark.parametrize(
    ("glance", "given", "kind", "text"),
    [
        # What does not pass is not tried again.
        (Glance({"put": [CloudRefused("400 no such format", 400)]}), {}, CloudRefused, "no such format"),
        (Glance({"put": [LoginRefused("wrong password")]}), {}, LoginRefused, "wrong password"),
        (Glance({"put": ["queued"] * 4}), {}, CloudAway, "broke"),
        (
            Glance({"put": [CloudRefused("x", 413, "413 too much")]}),
            {},
            CloudQuota,
            r"name-1 \(2.9 MiB\) was refused: 413",
        ),
        (Glance(None, ("killed",)), {}, ImageCreateException, "image name-1 has become killed"),
        (Glance(None, ("saving",) * 999), {}, ImageCreateException, "took more than 1000 s"),
        (Glance(status="importing"), {"by_import": True}, ImageCreateException, "was not imported: no qcow2"),
        (Glance(status="queued"), {"by_import": True}, ImageCreateException, "was not imported: no qcow2"),
    ],
)
def test_upload_that_fails(file: Path, glance: Glance, given: Any, kind: type[Exception], text: str) -> None:
    """U-9, O-15 to O-17: nothing is left."""
    tasks = [{"status": "success"}, {"status": "failure", "message": "no qcow2"}]
    glance.answers["GET", "/images/i1/tasks"] = {"tasks": tasks}
    with pytest.raises(kind, match=text):
        glance.upload(file, **given)
    assert glance.images == {}


# -- deletions --

IN_USE = CloudRefused("x", 409, "409 in use by a server")
PROTECTED = CloudRefused("x", 403, "403 protected")


@pytest.mark.parametrize(
    ("deletion", "shown", "change", "wanted"),
    [
        ([{}], [{"status": "active"}, {"status": "pending_delete"}], None, ""),
        ([{}], [{"status": "active"}, ABSENT], None, ""),
        ([ABSENT], [], None, ""),
        ([{}], [{"status": "active"}], None, "image i9 is still there"),
        # A page of a proxy proves nothing; the list does.
        ([NotFoundByProxy("404 by a proxy")], [], None, "404 by a proxy"),
        # O-18: it is waited for a while; who calls tries again.
        ([IN_USE, IN_USE, {}], [{"status": "deleted"}], None, ""),
        ([IN_USE], [], None, "i9 cannot be deleted while it is in use: 409 in use by a server"),
        # O-18: it is unprotected, which is logged; or the error says at once what to do.
        ([PROTECTED, {}], [{"status": "active", "protected": True}, ABSENT], {}, ""),
        (
            [PROTECTED],
            [{"status": "active", "protected": True}],
            PROTECTED,
            "i9 is protected, and cannot be unprotected",
        ),
        ([PROTECTED], [{"status": "active"}], None, "x"),
    ],
)
def test_deletion(
    caplog: pytest.LogCaptureFixture, deletion: list[Any], shown: list[Any], change: Any, wanted: str
) -> None:
    """O-18: until the image does not exist any more; one that does not exist any more is no error."""
    glance = Glance()
    glance.images["i9"] = {"id": "i9"}
    glance.answers["DELETE", "/images/i9"] = deletion
    glance.answers["GET", "/images/i9"] = [one if one is ABSENT else {"id": "i9", **one} for one in shown]
    glance.answers["PATCH", "/images/i9"] = change
    if wanted:
        with pytest.raises((ImageCreateException, CloudRefused, NotFoundByProxy), match=wanted):
            glance.store.delete("i9")
        if "proxy" in wanted:
            glance.images.clear()
            glance.store.delete("i9")
    else:
        glance.store.delete("i9")
    assert glance.count("PATCH", "/images/i9") == (0 if change is None else 1)
    assert ("image i9 is protected. It is unprotected" in caplog.text) is (change is not None)


# -- content --

SMALL = b"x" * 1000
QCOW2 = b"QFI\xfb" + bytes(20) + (5_000_000).to_bytes(8) + bytes(968)
SUMS: dict[str, str | None] = {name: hashlib.new(name, SMALL).hexdigest() for name in ("md5", "sha256", "sha512")}
GIVEN = {name: SUMS[name] for name in ("md5", "sha256")}
RAW, SIZE = {"disk_format": "raw"}, {"disk_format": "raw", "size": 1000}


@pytest.mark.parametrize(
    ("shown", "given", "text"),
    [
        # As it was sent.
        (SIZE | {"checksum": str(SUMS["md5"]).upper()}, GIVEN, None),
        (SIZE | {"os_hash_algo": "sha256", "os_hash_value": SUMS["sha256"]}, GIVEN, None),
        (SIZE | {"os_hash_algo": "SHA-512", "os_hash_value": SUMS["sha512"]}, GIVEN, None),
        (SIZE | {"checksum": SUMS["md5"]}, {"md5": None, "sha256": None}, None),
        # The cloud tells nothing, or nothing that makes sense.
        ({}, GIVEN, None),
        ({"size": True, "checksum": 7, "os_hash_algo": None}, GIVEN, None),
        (SIZE | {"os_hash_algo": "rot13", "os_hash_value": "qrs"}, GIVEN, None),
        # Another one.
        (SIZE | {"size": 999, "checksum": SUMS["md5"]}, GIVEN, "999 of 1000 bytes are in the cloud"),
        (SIZE | {"checksum": "0" * 32}, GIVEN, f"the md5 of the file is {SUMS['md5']}"),
        (SIZE | {"os_hash_algo": "sha256", "os_hash_value": "0"}, GIVEN, f"the sha256 of the file is {SUMS['sha256']}"),
        # Nothing is known of the file but what is in it.
        (SIZE | {"checksum": "0" * 32}, {}, f"the md5 of the file is {SUMS['md5']}"),
        (SIZE | {"os_hash_algo": "sha512", "os_hash_value": "0"}, GIVEN, f"the sha512 of the file is {SUMS['sha512']}"),
        # O-16: of an image of another format the cloud promises a content, and of a raw one the size of the disk.
        (RAW | {"size": 5_000_000, "checksum": "0"}, None, None),
        ({"disk_format": "vmdk", "size": 7}, None, None),
        (RAW | {"size": 4_999_999}, None, "the disk in it has 5000000 bytes, but the raw image"),
        (
            RAW | {"size": 0},
            None,
            "the cloud says that it has made an image of format raw of it, but one without content",
        ),
        (RAW, None, "the cloud says that it has made an image of format raw of it, but one without content"),
        ({"disk_format": "qcow2", "size": 7}, None, "7 of 1000 bytes are in the cloud"),
    ],
)
def test_what_is_in_the_cloud(
    tmp_path: Path, shown: dict[str, Any], given: dict[str, str | None] | None, text: str | None
) -> None:
    """U-14, O-16: size and checksum are compared with what the cloud says it has. None: a qcow2 file was sent."""
    path = tmp_path / "file"
    path.write_bytes(QCOW2 if given is None else SMALL)
    with path.open("rb") as open_file:
        found = wrong(
            Image.of({"id": "i1", **shown}), "qcow2" if given is None else "raw", Content(open_file), given or {}
        )
        assert found is None if text is None else str(found).startswith(text), found
        short = wrong(Image.of({"id": "i", "disk_format": "raw", "size": 3}), "qcow2", Content(open_file), {})
        assert (short is None) is (given is not None)


class Broken(io.FileIO):
    """The disk has an error in the second piece."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().read(size) or b""


@pytest.mark.parametrize(("size", "text"), [(10, "its size"), (4_000_000, "its size"), (None, "cannot be read")])
def test_trouble_with_the_file(file: Path, size: int | None, text: str) -> None:
    """Another length than before, or an error of the disk, is none of the connection."""
    with Broken(file) if size is None else file.open("rb") as open_file:
        content = Content(open_file)
        os.truncate(file, size or len(DATA))
        with pytest.raises(ImageCreateException, match=text):
            list(content)


def test_properties() -> None:
    """U-4: properties are texts, but for the attributes that Glance has itself."""
    given = {"min_disk": "20", "protected": "True", "os_hidden": False, "tags": ["a", 1], "hw_vif": True, "n": 3}
    made = {"min_disk": 20, "protected": True, "os_hidden": False, "tags": ["a", "1"], "hw_vif": "true", "n": "3"}
    assert api_properties(given) == made


MakeCloud = Callable[..., StubCloud]
MARK = ("POST", "/volumes/v1/metadata")
LIST = ("GET", "/volumes/detail")
OTHER = {**METADATA, "nodepool_provider_name": "other"}


def looked(sweep: Leaks) -> list[tuple[str, str]]:
    """What a look finds: kinds and ids."""
    return [(found.type, found.id) for found in sweep.resources()]


def test_ports(make_cloud: MakeCloud, caplog: pytest.LogCaptureFixture) -> None:
    """D-5, D-6: DOWN in two checks that are far enough apart, of Nova or without an owner, and of no new server."""
    cloud = make_cloud(**{"port-cleanup-interval": 600})
    ports = [
        *(("leaked", {}), ("unowned", {"device_owner": "", "device_id": ""}), ("stubborn", {}), ("absent", {})),
        *(("router", {"device_owner": "network:router_interface"}), ("up", {"status": "ACTIVE"})),
        ("booting", {"device_id": "s1"}),
    ]
    shown = {"status": "DOWN", "device_owner": "compute:nova", "device_id": "old"}
    cloud.stub.answers["GET", "/ports"] = {"ports": [{"id": key, **shown, **more} for key, more in ports]}
    cloud.stub.answers["GET", "/servers/detail"] = {"servers": [server("s1")]}
    cloud.stub.answers |= {("DELETE", f"/ports/{key}"): {} for key in ("leaked", "unowned")}
    cloud.stub.answers["DELETE", "/ports/stubborn"] = CloudRefused("in use", 409)
    sweep = Leaks(cloud)
    for seconds, deleted in ((0, []), (599, []), (2, ["absent", "leaked", "stubborn", "unowned"])):
        cloud.clock.now += seconds
        assert looked(sweep) == [("instance", "s1")]
        assert cloud.stub.sent("DELETE") == [f"/ports/{key}" for key in deleted]
        assert not sweep.suspected(), "the interval is longer than the pause to the next look"
    assert "port stubborn could not be deleted: in use" in caplog.text
    # What was seen once is not deleted, nor is anything while the cloud is away.
    cloud.stub.answers["GET", "/ports"] = [{"ports": [{"id": "new", **shown}]}, CloudAway("500"), {"ports": []}]
    for _ in range(3):
        cloud.clock.now += 601
        assert looked(sweep) == [("instance", "s1")]
    assert len(cloud.stub.sent("DELETE")) == 4
    assert "resources of kind port cannot be listed" in caplog.text


def test_floating_ips(make_cloud: MakeCloud) -> None:
    """D-7: attached to nothing, and forwarding nothing, in two checks."""
    cloud = make_cloud(**{"clean-floating-ips": True})
    free, forwards = {"id": "free"}, {"id": "forwards", "port_forwardings": [{"internal_port": 22}]}
    cloud.stub.answers["GET", "/floatingips"] = {"floatingips": [free, {"id": "used", "port_id": "p"}, forwards]}
    sweep = Leaks(cloud)
    for deleted in ([], ["/floatingips/free"]):
        list(sweep.resources())
        assert (cloud.stub.sent("DELETE"), sweep.suspected()) == (deleted, not deleted)
    cloud.stub.answers["GET", "/floatingips"] = CloudRefused("no", 403)
    assert looked(sweep) == []


def test_resources(make_cloud: MakeCloud) -> None:
    """D-3, D-4: volumes that are not in use, and unfinished images, with their metadata; the framework decides."""
    cloud = make_cloud(label_section(**{"boot-from-volume": True}))
    free = {"metadata": METADATA, "attachments": []}
    volumes = [{"id": "v1", **free}, {"id": "v2", **free, "attachments": [{"server_id": "s"}]}, {"id": "v3"}]
    cloud.stub.answers[LIST] = {"volumes": [*volumes, {"id": "v4", **free, "status": "deleting"}]}
    images = {"images": [{"id": "i1", **METADATA}, {"id": "i2"}]}
    unfinished = {"status": "saving", "visibility": "private"}
    cloud.stub.answers["GET", "/images"] = lambda body, query: images if query == unfinished else {"images": []}
    sweep = Leaks(cloud)
    volume, image = sweep.resources()
    assert ((volume.id, volume.usable), (image.id, image.usable)) == (("v1", True), ("i1", False))
    cloud.stub.answers |= {("DELETE", path): {} for path in ("/volumes/v1", "/images/i1")}
    for found in (volume, image):
        assert found.metadata.items() >= METADATA.items()
        sweep.delete(found)
    assert cloud.stub.sent("DELETE") == ["/volumes/v1", "/images/i1"]


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


@pytest.mark.parametrize(
    ("first", "marks"),
    [
        (None, 1),
        ({}, 1),
        # 404 right after Nova made it; cinder.volume.api.API._update_volume_metadata refuses it for some states.
        (CloudNotFound("404", 404), 2),
        (CloudRefused("Updating volume metadata is not allowed", 400), 2),
        (CloudAway("503"), 2),
    ],
)
def test_marks(cloud: StubCloud, first: Any, marks: int) -> None:
    """O-6: it is marked before its server is deleted, unless that was done; once."""
    if first is not None:
        cloud.stub.answers[MARK] = first
        cloud.volumes.begin(["v1"], METADATA)
        cloud.stub.answers[MARK] = {}
    cloud.show(with_volumes("v1"))
    cloud.delete_instance("s1")
    sent = [call for call in cloud.stub.calls if call[0] in ("POST", "DELETE")]
    assert sent == [*[MARK] * marks, ("DELETE", "/servers/s1")]
    assert {"metadata": METADATA} in cloud.stub.bodies


def test_marks_later(cloud: StubCloud, caplog: pytest.LogCaptureFixture) -> None:
    """O-6, D-2: trouble does not keep the server; the next look marks it. What is refused is not tried again."""
    cloud.show(with_volumes("v1"))
    cloud.stub.answers[MARK] = CloudAway("503")
    cloud.delete_instance("s1")
    assert cloud.stub.sent("DELETE") == ["/servers/s1"]
    cloud.show()
    sweep = Leaks(cloud)
    assert sweep.suspected()
    cloud.stub.answers[MARK] = {}
    list(sweep.resources())
    assert (cloud.stub.count(*MARK), sweep.suspected()) == (2, False)
    cloud.stub.answers["POST", "/volumes/v2/metadata"] = CloudRefused("403", 403)
    cloud.volumes.begin(["v2"], METADATA)
    list(sweep.resources())
    assert len(cloud.stub.sent("POST")) == 3
    assert "volume v2 is not marked as ours" in caplog.text


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
    list(Leaks(cloud).resources())
    cloud.delete_instance("s1")
    assert len(cloud.stub.sent("POST")) == marks


@pytest.mark.parametrize("known", [True, False])
def test_a_server_that_is_in_no_list(make_cloud: MakeCloud, known: bool) -> None:
    """O-6: after a restart nothing is known of it. Only the answer to the deletion counts."""
    cloud = make_cloud(label_section(**{"boot-from-volume": True}))
    cloud.stub.answers[MARK] = {}
    if known:
        cloud.stub.answers["GET", "/servers/s1"] = {"server": with_volumes("v1")}
    cloud.delete_instance("s1")
    assert (cloud.stub.count(*MARK), cloud.stub.sent("DELETE")) == (int(known), ["/servers/s1"])


@pytest.mark.parametrize(
    ("answer", "often", "lists"),
    [
        ({"volumes": []}, False, 2),
        ({"volumes": [{"id": "v1", "metadata": OTHER}]}, False, 2),
        ({"volumes": [{"id": "v1", "metadata": METADATA}]}, True, 4),
        (CloudRefused("403", 403), False, 2),
        (CloudAway("503"), False, 2),
    ],
)
def test_volumes_of_labels_that_are_gone(make_cloud: MakeCloud, answer: Any, often: bool, lists: int) -> None:
    """D-2: what their servers left is found, in two looks in a row; for nothing it is not looked for often."""
    cloud = make_cloud()
    cloud.stub.answers[LIST] = answer
    sweep = Leaks(cloud)
    for _ in range(3):
        list(sweep.resources())
    cloud.clock.now += OLD_VOLUMES_SECONDS
    ours = ("volume", "v1") in looked(sweep)
    assert ours is (isinstance(answer, dict) and answer["volumes"] != [])
    assert cloud.stub.count(*LIST) == lists
