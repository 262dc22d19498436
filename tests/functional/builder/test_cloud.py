# SPDX-License-Identifier: Apache-2.0
"""An image on its whole way: built by diskimage-builder, in a real Glance, booted from, removed (U-4, R-11, L-1)."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.builder.site import BUILD_SECONDS, SMALL, BuilderSite
from tests.functional.openstack.cloud import RealCloud
from tests.functional.openstack.place import OpenStackProvider, Place
from tests.support.image_znodes import Upload
from tests.support.wait import wait_for

#: A command that diskimage-builder runs through, e.g. one that makes up for a kernel without device mapper.
WRAPPER_VARIABLE = "NODEPOOL_TEST_DIB_WRAPPER"
DISK_IMAGE_CREATE = Path(sys.executable).parent / "disk-image-create"
#: Debian as in the recipe of doc/source/explanation/images.rst; its mirror is the one that this machine uses.
DEBIAN: Mapping[str, Any] = {
    "name": "debian",
    "release": "bookworm",
    "dib-cmd": f"{os.environ.get(WRAPPER_VARIABLE, '')} {DISK_IMAGE_CREATE} -p cloud-init,openssh-server,ifupdown",
    "elements": ["debian-minimal", "vm", "block-device-mbr", "openssh-server", "cloud-init-datasources"],
    "env-vars": {
        "DIB_CLOUD_INIT_DATASOURCES": "ConfigDrive, OpenStack",
        "DIB_DISTRIBUTION_MIRROR": os.environ.get("DIB_DISTRIBUTION_MIRROR", "http://deb.debian.org/debian"),
        "DIB_DEBIAN_SECURITY_MIRROR": os.environ.get(
            "DIB_DEBIAN_SECURITY_MIRROR", "http://deb.debian.org/debian-security"
        ),
    },
}
DEBIAN_SECONDS = 1500.0
#: A guest under software emulation needs a minute; its first boot makes host keys.
VM_BOOT_SECONDS = 600


@pytest.fixture
def site(site: BuilderSite, place: Place) -> Iterator[BuilderSite]:
    """It ends before what the cloud still holds is looked at."""
    yield site
    site.stop()


def use_image(provider: OpenStackProvider, image: Mapping[str, Any], **login: Any) -> list[dict[str, Any]]:
    """Nodes of the label boot from a built image. Returns ``diskimages`` of the configuration."""
    del provider.label["cloud-image"]
    provider.label["diskimage"] = image["name"]
    provider.section["diskimages"] = [{"name": image["name"], "meta": {"purpose": "a test"}, **login}]
    provider.section["cloud-images"] = []
    return [dict(image)]


def check_stored(site: BuilderSite, cloud: RealCloud, upload: Upload) -> str:
    """Glance has the file of the build byte for byte, and knows whose it is. Returns its id."""
    record = upload.record or {}
    build = next(build for build in site.records.image(upload.image).builds if build.build_id == upload.build_id)
    image = cloud.connection.image.get_image(record["external_id"])
    sums = site.sums(build, "qcow2")
    assert (image.status, image.disk_format) == ("active", "qcow2")
    assert (image.size, image.checksum) == (site.file(build, "qcow2").stat().st_size, sums["md5"])
    assert image.properties["nodepool_build_id"] == upload.build_id
    assert image.properties["nodepool_upload_id"] == upload.upload_id
    assert image.properties["purpose"] == "a test"
    assert image.name == record["external_name"]
    return str(image.id)


def remove_image(site: BuilderSite, place: Place, provider: OpenStackProvider, external_id: str) -> None:
    """The image leaves the configuration, and then cloud, ZooKeeper and disk."""
    provider.section["diskimages"] = []
    provider.pool["labels"] = []
    site.configure([], [provider])
    wait_for("no record is left", lambda: not site.records.image("small").builds, BUILD_SECONDS)
    wait_for("no file is left", lambda: not list(site.images.glob("small-*")))
    assert external_id not in place.cloud.contents()["images"]


def test_from_build_to_node(site: BuilderSite, place: Place, provider: OpenStackProvider) -> None:
    """Nobody does anything by hand: the image is built, uploaded and booted from; taken out, it goes everywhere."""
    images = use_image(provider, SMALL)
    extra = site.configure(images, [provider])
    site.start()
    place.launch(provider, extra=extra)
    upload = site.wait_upload("small", provider.name)
    external_id = check_stored(site, place.cloud, upload)
    request = place.fulfilled(place.zuul.submit(["small"]))
    assert place.cloud.server_of(request.nodes[0]).image.id == external_id
    (node,) = place.use(request)
    assert node.username == "zuul"
    place.wait_no_nodes()
    remove_image(site, place, provider, external_id)
    place.wait_empty()


def test_from_file_to_node(site: BuilderSite, place: Place, provider: OpenStackProvider) -> None:
    """I-1, I-8: the file of an image is imported, uploaded and booted from."""
    site.configure([{**SMALL, "formats": ["qcow2"]}])
    site.start()
    file = site.directory / "made.qcow2"
    shutil.copyfile(site.file(site.wait_build("small"), "qcow2"), file)
    extra = site.configure(use_image(provider, {"name": "imported", "pause": True}), [provider])
    site.records.request_build("imported", {"file": str(file)})
    external_id = check_stored(site, place.cloud, site.wait_upload("imported", provider.name))
    place.launch(provider, extra=extra)
    request = place.fulfilled(place.zuul.submit(["small"]))
    assert place.cloud.server_of(request.nodes[0]).image.id == external_id
    place.use(request)
    place.wait_no_nodes()
    provider.section["diskimages"], provider.pool["labels"] = [], []
    site.configure([], [provider])
    place.wait_empty()


def test_rebuild_while_in_use(site: BuilderSite, place: Place, provider: OpenStackProvider) -> None:
    """A new build on request is used for new nodes at once; nodes of the old one stay."""
    extra = site.configure(use_image(provider, SMALL), [provider])
    site.start()
    first = site.wait_upload("small", provider.name)
    place.launch(provider, extra=extra)
    old = place.fulfilled(place.zuul.submit(["small"]))
    site.records.request_build("small")

    def second() -> Upload | None:
        upload = site.records.image("small").current(provider.name)
        return upload if upload is not None and upload.build_id != first.build_id else None

    upload = wait_for("the second build is uploaded", second, BUILD_SECONDS)
    assert upload is not None
    new = place.fulfilled(place.zuul.submit(["small"]))
    assert place.cloud.server_of(new.nodes[0]).image.id == (upload.record or {})["external_id"]
    assert place.cloud.server_of(old.nodes[0]).image.id == (first.record or {})["external_id"]
    for request in (old, new):
        place.use(request)
    place.wait_no_nodes()
    remove_image(site, place, provider, (upload.record or {})["external_id"])
    place.wait_empty()


@pytest.mark.timeout(DEBIAN_SECONDS + 2 * VM_BOOT_SECONDS)
@pytest.mark.skipif(os.environ.get("OPENSTACK_RIG_VM") != "1", reason="OPENSTACK_RIG_VM=1: takes many minutes")
def test_debian_boots(site: BuilderSite, place: Place, provider: OpenStackProvider) -> None:
    """The recipe of the documentation: a virtual machine boots from it, and its own sshd answers."""
    place.cloud.need_flavor("rig-vm")
    provider.label["flavor-name"] = "rig-vm"
    provider.label["config-drive"] = True
    provider.pool["networks"] = ["vm"]
    provider.section["boot-timeout"] = VM_BOOT_SECONDS
    extra = site.configure(use_image(provider, DEBIAN, **{"config-drive": True}), [provider])
    site.start()
    upload = site.wait_upload("debian", provider.name, DEBIAN_SECONDS)
    external_id = check_stored(site, place.cloud, upload)
    place.launch(provider, extra=extra)
    request = place.zuul.wait(place.zuul.submit(["small"]), VM_BOOT_SECONDS)
    assert request.state == "fulfilled"
    assert place.cloud.server_of(request.nodes[0]).image.id == external_id
    nodes = place.zuul.accept(request)
    for node in nodes.getNodes():
        place.check_host_keys(node)
    place.zuul.use(nodes)
    place.zuul.give_back(nodes)
    place.wait_no_nodes()
    site.stop()
    place.cloud.connection.image.delete_image(external_id)
    place.wait_empty()
