# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.images` (rules U-9, U-14, O-15)."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, LoginRefused
from nodepool.driver.framework.images import ImageTime
from nodepool.driver.framework.uploads import UploadInterrupted
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.images import ATTEMPTS, NOTICE_SECONDS, Content, GlanceUpload
from nodepool.exceptions import ImageCreateException, LaunchError, QuotaException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import StubTransport

DATA = b"0123456789" * 300_000
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
IDS = {"nodepool_provider_name": "cloud-a", "nodepool_build_id": "b1", "nodepool_upload_id": "7"}
BODY = {"name": "name-1", "disk_format": "raw", **IDS}
AWAY = CloudAway("the connection broke")


class Stopped(threading.Event):
    """Time passes at once."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.now += timeout or 0
        return self.is_set()


class Glance(StubTransport):
    """Images with memory; what goes wrong is told beforehand.

    :ivar troubles: what the next calls of a kind raise (``create``, ``put``, ``import``, ``get``, ``delete``); None =
        all is well. A text is the status of the image after a call that breaks off.
    :ivar lost: kinds of calls that do their work, but whose first answer is lost.
    :ivar states: that images seem to have at first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.images: dict[str, dict[str, Any]] = {}
        self.troubles: dict[str, list[Exception | str | None]] = {}
        self.lost: set[str] = set()
        self.states: list[str] = []
        self.sent: list[str] = []
        self.deleted: list[str] = []
        self.methods = ["glance-direct"]
        self.imported: dict[str, Any] = {}
        self.answers["POST", "/images"] = self.create
        self.answers["GET", "/images"] = lambda body, query: {"images": list(self.images.values())}

    def _trouble(self, kind: str, image: dict[str, Any] | None = None) -> None:
        waiting = self.troubles.get(kind) or [None]
        trouble = waiting.pop(0)
        if isinstance(trouble, str):
            assert image is not None
            image["status"] = trouble
            raise AWAY
        if trouble is not None:
            raise trouble

    def _answer(self, kind: str, content: Any) -> Any:
        if kind in self.lost:
            self.lost.remove(kind)
            raise AWAY
        return content

    def create(self, body: Any, query: Any) -> Any:
        self._trouble("create")
        number = f"i{len(self.images) + len(self.deleted) + 1}"
        image = self.images[number] = {"id": number, "status": "queued", **body}
        self.answers["PUT", f"/images/{number}/file"] = lambda given, query: self.put(image, "active", given)
        self.answers["PUT", f"/images/{number}/stage"] = lambda given, query: self.put(image, "uploading", given)
        self.answers["GET", f"/images/{number}"] = lambda body, query: self.get(image)
        self.answers["DELETE", f"/images/{number}"] = lambda body, query: self.delete(image)
        self.answers["POST", f"/images/{number}/import"] = lambda body, query: self.begin_import(image)
        return self._answer("create", image)

    def put(self, image: dict[str, Any], status: str, arguments: Any) -> Any:
        self.sent.append(str(image["id"]))
        self._trouble("put", image)
        data = b"".join(arguments["data"])
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        image |= {"size": len(data), "checksum": checksum, "status": status}
        return self._answer("put", {})

    def begin_import(self, image: dict[str, Any]) -> Any:
        self._trouble("import", image)
        image |= {"status": "active", **self.imported}
        return self._answer("import", {})

    def get(self, image: dict[str, Any]) -> dict[str, Any]:
        self._trouble("get")
        if image["id"] not in self.images:
            raise CloudNotFound("gone", 404)
        return {**image, "status": self.states.pop(0)} if self.states else image

    def delete(self, image: dict[str, Any]) -> dict[str, Any]:
        self._trouble("delete")
        if self.images.pop(image["id"], None) is None:
            raise CloudNotFound("gone", 404)
        self.deleted.append(image["id"])
        return {}


class Site:
    """An upload to a cloud, and what came of it."""

    def __init__(self, file: Path) -> None:
        self.glance = Glance()
        self.clock = ManualClock()
        self.begun = self.clock.now
        self.stopped = Stopped(self.clock)
        self.path = file
        self.body: dict[str, Any] = BODY
        self.md5: str | None = MD5

    def upload(self, by_import: bool = False, seconds: float = 1000) -> str:
        what, wanted = "Provider cloud-a: the upload of image name-1", uploads.checker()
        time = ImageTime(what, seconds, self.stopped, self.clock, wanted)
        api = Api(self.glance)  # type: ignore[arg-type]
        with self.path.open("rb") as file:
            content = Content(file, time.check)
            return GlanceUpload("cloud-a", api, self.body, content, {"md5": self.md5}, time, by_import).run()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    file = tmp_path / "image.raw"
    file.write_bytes(DATA)
    return Site(file)


def test_broken_off_and_sent_again(site: Site) -> None:
    """O-15: an image that waits for its data again gets them once more, after a pause."""
    site.glance.troubles["put"] = ["queued", "queued", None]
    assert site.upload() == "i1"
    assert (site.glance.sent, site.glance.deleted) == (["i1", "i1", "i1"], [])
    assert site.clock.now - site.begun >= 3


def test_broken_off_for_good(site: Site) -> None:
    """O-15, U-9: after some attempts it is an error, and nothing is left."""
    site.glance.troubles["put"] = ["queued"] * ATTEMPTS
    with pytest.raises(CloudAway, match="broke"):
        site.upload()
    assert (len(site.glance.sent), site.glance.images) == (ATTEMPTS, {})


@pytest.mark.parametrize("status", ["saving", "killed"])
def test_another_image(site: Site, status: str) -> None:
    """O-15: one that waits for no data any more is deleted, and another one is made."""
    site.glance.troubles["put"] = [status]
    assert site.upload() == "i2"
    assert (site.glance.sent, site.glance.deleted) == (["i1", "i2"], ["i1"])


def test_image_vanished(site: Site) -> None:
    """O-15: between two attempts somebody has deleted it."""
    site.glance.troubles["put"] = ["queued"]
    site.glance.troubles["get"] = [CloudNotFound("gone", 404)]
    assert site.upload() == "i2"


@pytest.mark.parametrize("by_import", [False, True])
@pytest.mark.parametrize("kind", ["create", "put", "import"])
def test_lost_answer(site: Site, kind: str, by_import: bool) -> None:
    """O-15: what a call without an answer did is found, and not done twice. Staged data may lack a part."""
    site.glance.lost.add(kind)
    found = site.upload(by_import)
    again = by_import and kind == "put"
    assert (found, site.glance.sent) == (("i2", ["i1", "i2"]) if again else ("i1", ["i1"]))
    assert list(site.glance.images) == [found]


def test_of_another_upload(site: Site) -> None:
    """O-15: an image of the same name that waits for its data need not be ours."""
    site.glance.images["i0"] = {"id": "i0", "status": "queued", **BODY, "nodepool_upload_id": "6"}
    site.glance.lost.add("create")
    site.glance.troubles["create"] = [AWAY]
    assert site.upload() == "i2"
    assert "i0" in site.glance.images


def test_cloud_is_away_meanwhile(site: Site) -> None:
    """O-15: so long as it does not say what became of the image, it is asked again."""
    site.glance.troubles["put"] = ["queued"]
    site.glance.troubles["get"] = [AWAY, AWAY, None]
    assert site.upload() == "i1"


def test_busy(site: Site) -> None:
    """O-15: the cloud has not noticed yet that the attempt before broke off."""
    site.glance.troubles["put"] = [CloudRefused("409 saving", 409)]
    assert site.upload() == "i1"


@pytest.mark.parametrize("error", [CloudRefused("400 no such format", 400), LoginRefused("wrong password")])
def test_refused(site: Site, error: LaunchError) -> None:
    """What does not pass is not tried again."""
    site.glance.troubles["put"] = [error]
    with pytest.raises(type(error)):
        site.upload()
    assert (site.glance.sent, site.glance.images) == (["i1"], {})


@pytest.mark.parametrize("kind", ["create", "put"])
@pytest.mark.parametrize("error", [CloudRefused("x: 413 too much", 413, "413 too much"), None])
def test_no_room(site: Site, kind: str, error: CloudRefused | None) -> None:
    """O-17: it is said whose image did not fit, how large it is, and what to do."""
    from nodepool.driver.openstack.errors import refusal

    site.glance.troubles[kind] = [error or refusal("x", "exceeds the quota", 403)]
    with pytest.raises(QuotaException, match=r"cloud-a: image name-1 \(2.9 MiB\) was refused: 4.*delete images there"):
        site.upload()
    assert site.glance.images == {}


def test_corrupted(site: Site) -> None:
    """U-14, U-9: it is deleted, also when the first attempts at that fail."""
    site.md5 = "0" * 32
    site.glance.troubles["delete"] = [AWAY, AWAY, None]
    with pytest.raises(ImageCreateException, match="image name-1 did not arrive as it was sent: the md5"):
        site.upload()
    assert site.glance.deleted == ["i1"]


def test_cannot_be_deleted(site: Site) -> None:
    """The error of the upload counts; its ids say later whose image it is."""
    site.md5 = "0" * 32
    site.glance.troubles["delete"] = [AWAY] * ATTEMPTS
    with pytest.raises(ImageCreateException, match="did not arrive"):
        site.upload()
    assert list(site.glance.images) == ["i1"]


def test_answer_comes_too_late(site: Site) -> None:
    """O-15: an image that has got all of its data is waited for."""
    site.glance.lost.add("put")
    site.glance.states = ["saving"] * 12
    assert site.upload() == "i1"
    assert site.glance.sent == ["i1"]
    assert site.clock.now - site.begun > NOTICE_SECONDS


def test_protected(site: Site) -> None:
    """O-18: an image is protected when it is of use; what is of no use must be deleted."""
    changes: list[Any] = []
    site.body = {**BODY, "protected": True}
    site.glance.answers["PATCH", "/images/i2"] = lambda body, query: changes.append(body["json"])
    site.glance.troubles["put"] = ["killed"]
    assert site.upload() == "i2"
    assert changes == [[{"op": "replace", "path": "/protected", "value": True}]]
    assert "protected" not in site.glance.images["i2"]


def test_import(site: Site) -> None:
    """O-16: data go to the staging area; what the import makes of them is checked."""
    assert site.upload(by_import=True) == "i1"
    assert site.glance.count("PUT", "/images/i1/stage") == site.glance.count("POST", "/images/i1/import") == 1
    assert site.glance.bodies[-2] == {"method": {"name": "glance-direct"}}


def test_conversion(site: Site) -> None:
    """O-16: an image that the cloud converted has another checksum."""
    site.glance.imported = {"disk_format": "qcow2", "size": 5, "checksum": "other"}
    assert site.upload(by_import=True) == "i1"


FAILED = {"os_glance_failed_import": "store", "os_glance_importing_to_stores": ""}


@pytest.mark.parametrize(
    ("imported", "tasks", "text"),
    [
        ({"status": "importing", **FAILED}, [{"status": "success"}, {"status": "failure", "message": "bad"}], "bad"),
        ({"status": "queued"}, [], "the cloud does not say why"),
        ({"status": "queued"}, None, "the cloud does not say why"),
        ({"status": "importing"}, [{"status": "failure", "message": "no qcow2"}], "no qcow2"),
    ],
)
def test_import_fails(site: Site, imported: dict[str, str], tasks: list[Any] | None, text: str) -> None:
    """O-16: the reason is told, and nothing is left."""
    site.glance.imported = imported
    if tasks is not None:
        site.glance.answers["GET", "/images/i1/tasks"] = {"tasks": tasks}
    with pytest.raises(ImageCreateException, match=f"image name-1 was not imported: {text}"):
        site.upload(by_import=True)
    assert site.glance.images == {}
    assert site.clock.now - site.begun < 60


def test_import_takes_long(site: Site) -> None:
    """O-16: as long as no store has failed for good, and no task."""
    site.glance.states = ["importing"] * 20
    site.glance.imported = {"os_glance_failed_import": "one", "os_glance_importing_to_stores": "another"}
    assert site.upload(by_import=True) == "i1"


def test_cloud_that_is_away_now_and_then(site: Site) -> None:
    """O-16: an import goes on meanwhile; looks that fail here and there do not begin it again."""
    site.glance.states = ["importing"] * 20
    site.glance.troubles["get"] = [*[AWAY, AWAY, None] * 4, *[None] * 20]
    assert site.upload(by_import=True) == "i1"
    assert site.glance.deleted == []
    assert site.glance.count("POST", "/images/i1/import") == 1


def test_stopped(site: Site) -> None:
    """Nobody waits for an upload of a provider that was stopped."""
    site.stopped.set()
    with pytest.raises(
        ImageCreateException, match="the upload of image name-1 ended, because the provider was stopped"
    ):
        site.upload()


@pytest.mark.parametrize("asked", [1, 2])
def test_lock_is_lost_meanwhile(site: Site, asked: int) -> None:
    """R-4: no further image is made, and the one that was made goes: somebody else has looked for it already."""
    site.glance.troubles["put"] = ["saving"]

    def lost() -> None:
        nonlocal asked
        asked -= 1
        if asked < 0:
            raise UploadInterrupted("the lock is lost")

    with uploads.watched(lambda *_: None, lost), pytest.raises(UploadInterrupted):
        site.upload()
    assert (site.glance.sent, site.glance.images) == (["i1"], {})


def test_lock_that_is_lost_before_the_first_image(site: Site) -> None:
    """R-4: nothing is made."""

    def lost() -> None:
        raise UploadInterrupted("the lock is lost")

    with uploads.watched(lambda *_: None, lost), pytest.raises(UploadInterrupted):
        site.upload()
    assert site.glance.count("POST", "/images") == 0


def test_progress(site: Site) -> None:
    """The builder hears how far it is, also at a second attempt."""
    site.glance.troubles["put"] = [None]
    seen: list[tuple[int, int]] = []
    with uploads.watched(lambda done, total: seen.append((done, total))):
        site.upload()
    assert seen[0] == (1024 * 1024, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
