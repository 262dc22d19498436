# SPDX-License-Identifier: Apache-2.0
"""The image service in memory, and the uploads of the fake driver to it."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver import gateway
from nodepool.driver.fake import FakeDriver
from nodepool.driver.fake.cloud import QUEUED, USABLE, FakeCloud, FakeImages, ImageError, NoSuchImage
from nodepool.driver.fake.provider import FakeProvider
from nodepool.driver.framework import uploads
from nodepool.exceptions import ConfigError, ImageCreateException
from nodepool.model.image import ImageUpload
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn
from tests.support.wait import DEADLINE_SECONDS, wait_for

DATA = b"0123456789"
MD5 = hashlib.md5(DATA).hexdigest()
SHA256 = hashlib.sha256(DATA).hexdigest()
KEYS = {"nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}


@pytest.fixture
def images() -> FakeImages:
    return FakeImages("c")


def upload(images: FakeImages) -> str:
    image = images.create("fedora-1", "qcow2", KEYS)
    images.upload(image.id, [DATA[:4], DATA[4:]], len(DATA))
    return image.id


def test_life_of_an_image(images: FakeImages) -> None:
    """Made, listed with its metadata, filled, deleted, gone."""
    made = images.create("fedora-1", "qcow2", KEYS)
    assert (made.name, made.format, made.status, made.size) == ("fedora-1", "qcow2", QUEUED, None)
    stored = images.upload(made.id, [DATA], len(DATA))
    assert (stored.status, stored.size, stored.md5, stored.sha256) == (USABLE, 10, MD5, SHA256)
    assert images.images() == [stored] == [images.image(made.id)]
    images.delete(made.id)
    assert images.images() == []
    for call in (images.image, images.delete):
        with pytest.raises(NoSuchImage):
            call(made.id)
    assert images.calls == {"create": 1, "upload": 1, "list": 2, "get": 2, "delete": 2}


def test_trouble(images: FakeImages) -> None:
    """Each knob is used up by one call, and the next one works."""
    images.set(refused_images=1, lost_images=1, broken_uploads=1, refused_deletions=1)
    with pytest.raises(ImageError, match="refused"):
        images.create("n", None, {})
    assert images.images() == []
    with pytest.raises(ImageError, match="closed"):
        images.create("n", None, KEYS)
    (lost,) = images.images()
    assert lost.metadata == KEYS
    with pytest.raises(ImageError, match="reset"):
        upload(images)
    made = upload(images)
    with pytest.raises(ImageError, match="in use"):
        images.delete(made)
    images.delete(made)
    images.set(images_down=True)
    with pytest.raises(ImageError, match="unavailable"):
        images.images()


@pytest.mark.parametrize("knob", ["corrupted_uploads", "truncated_uploads"])
def test_other_bytes_arrive(images: FakeImages, knob: str) -> None:
    images.set(**{knob: 1})
    first, second = (images.image(upload(images)) for _ in range(2))
    assert first.md5 != MD5
    assert first.size == (10 if knob == "corrupted_uploads" else 9)
    assert (second.md5, second.size) == (MD5, 10)


def test_unknown_knob(images: FakeImages) -> None:
    with pytest.raises(TypeError):
        images.set(colour="red")


# -- the driver --


def image_config(**section: Any) -> Config:
    config = Config()
    config.labels = {name: Label(name) for name in ("small", "built")}
    config.diskimages = {"fedora": DiskImage("fedora")}
    labels = [{"name": "small"}, {"name": "built", "diskimage": "fedora"}]
    data = {
        "name": "nowhere",
        "driver": "fake",
        "cloud": f"images-{uuid.uuid4().hex[:8]}",
        "diskimages": [{"name": "fedora"}],
        "pools": [{"name": "main", "labels": labels}],
        **section,
    }
    provider = FakeDriver().getProviderConfig(data)
    provider.getSchema()(data)
    provider.load(config)
    config.providers["nowhere"] = provider
    return config


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
def provider(zk: MemoryZooKeeper) -> Iterator[FakeProvider]:
    config: Any = image_config().providers["nowhere"]
    provider = FakeDriver().getProvider(config)
    provider.zk = zk
    provider.start(zk)
    yield provider
    provider.stop()
    provider.join()
    FakeCloud.forget(config.cloud)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "image.qcow2"
    path.write_bytes(DATA)
    return str(path)


def send(provider: FakeProvider, file: str) -> str:
    return gateway.upload_image(
        provider, provider.provider.diskimages["fedora"], "fedora-1", file, "qcow2", dict(KEYS), MD5, SHA256
    )


def test_configuration() -> None:
    """The builder reads these; the image learns the format."""
    config = image_config(**{"image-type": "raw", "upload-seconds": 3, "post-upload-hook": "/bin/true"})
    provider: Any = config.providers["nowhere"]
    assert provider.manage_images
    assert (provider.image_type, config.diskimages["fedora"].image_types) == ("raw", {"raw"})
    assert (provider.image_name_format, provider.post_upload_hook) == ("{image_name}-{timestamp}", "/bin/true")
    assert provider.image_knobs == {"upload_seconds": 3}
    assert provider.pools["main"].labels["built"].diskimage is provider.diskimages["fedora"]
    assert provider.pools["main"].labels["small"].diskimage is None


def test_label_of_no_diskimage() -> None:
    with pytest.raises(ConfigError, match="no diskimage 'fedora'; add it"):
        image_config(diskimages=[])


def test_upload(provider: FakeProvider, file: str) -> None:
    """D-1, U-5: the image has all metadata and the file's content; how far it is was reported; it can be deleted."""
    seen: list[tuple[int, int]] = []
    with uploads.watched(lambda *at: seen.append(at)):
        external_id = send(provider, file)
    image = provider.cloud.images.image(external_id)
    assert (image.md5, image.format, image.name) == (MD5, "qcow2", "fedora-1")
    assert image.metadata == {**KEYS, "nodepool_provider_name": "nowhere"}
    assert seen[-1] == (10, 10)
    (listed,) = gateway.list_images(provider)
    assert (listed.id, listed.name, listed.metadata) == (external_id, "fedora-1", image.metadata)
    for _ in range(2):
        gateway.delete_image(provider, "fedora-1", external_id)
    assert gateway.list_images(provider) == []


@pytest.mark.parametrize("knob", ["corrupted_uploads", "truncated_uploads"])
def test_broken_image(provider: FakeProvider, file: str, knob: str) -> None:
    """U-9, U-14: it is not what was sent, so it is deleted, and the error reaches who called."""
    provider.cloud.images.set(**{knob: 1})
    with pytest.raises(ImageCreateException, match="did not arrive as it was sent"):
        send(provider, file)
    assert provider.cloud.images.images() == []
    assert send(provider, file)


def test_what_cannot_be_removed(provider: FakeProvider, file: str, caplog: pytest.LogCaptureFixture) -> None:
    """U-9: the error of the upload counts; what is left can be found by its metadata."""
    provider.cloud.images.set(broken_uploads=1, refused_deletions=1)
    with pytest.raises(ImageError, match="reset"):
        send(provider, file)
    assert "could not be removed" in caplog.text
    (left,) = gateway.list_images(provider)
    assert dict(left.metadata).items() >= KEYS.items()


def test_stop_ends_uploads(provider: FakeProvider, file: str) -> None:
    """An upload that is under way breaks off; nobody waits for it."""
    provider.cloud.images.set(hanging_uploads=True)
    errors: list[Exception] = []

    def run() -> None:
        try:
            send(provider, file)
        except ImageError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for("the upload has begun", lambda: provider.cloud.images.calls["upload"] == 1)
    provider.stop()
    thread.join(DEADLINE_SECONDS)
    assert [str(error) for error in errors] == ["the upload was given up"]
    assert provider.cloud.images.images() == []


def test_label_waits_for_its_image(provider: FakeProvider, zk: MemoryZooKeeper) -> None:
    """L-10: a label with a diskimage can be used once the image was uploaded; a node says of which upload it is."""
    worker = PoolWorkerStandIn(zk, provider, "main")
    assert provider.labelReady("small")
    assert not provider.labelReady("built")
    zk.uploads["fedora", "nowhere"] = ready_upload()
    assert provider.labelReady(provider.provider.pools["main"].labels["built"])
    _, (node,) = worker.serve("built", timeout=DEADLINE_SECONDS)
    assert node.image_id == "/nodepool/images/fedora/builds/b1/providers/nowhere/images/0000000001"
    assert node.username == "zuul"


def ready_upload() -> ImageUpload:
    upload = ImageUpload("fedora", "b1", "nowhere", "0000000001")
    upload.state = "ready"
    upload.external_id = "i-1"
    return upload
