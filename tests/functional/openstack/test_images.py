# SPDX-License-Identifier: Apache-2.0
"""An image of ours on its way: uploaded through the driver's Adapter, used by a node, deleted (rules U-4, U-5, L-1)."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.config.loader import load_config
from nodepool.driver.openstack import OpenStackAdapter
from nodepool.driver.openstack.config import OpenStackProviderConfig
from tests.functional.openstack.place import OpenStackProvider, Place
from tests.support.launcher_config import write_config

KEYS = {"nodepool_provider_name": "real", "nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
#: Magic, version, no backing file, clusters of 64 KiB, a disk of 16 MiB (docs/interop/qcow2 in QEMU's sources).
QCOW2_HEAD = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 0, 0, 16, 16 * 1024 * 1024)
EXTRA = {"diskimages": [{"name": "built"}]}


@pytest.fixture
def adapter(place: Place, provider: OpenStackProvider, tmp_path: Path) -> Iterator[OpenStackAdapter]:
    """The driver's adapter in this process, as a builder has it."""
    del provider.label["cloud-image"]
    provider.label["diskimage"] = "built"
    provider.section["diskimages"] = [{"name": "built", "meta": {"purpose": "a test"}}]
    path = tmp_path / "builder.yaml"
    write_config(path, place.workplace.zookeeper, place.workplace.chroot, [provider], extra=EXTRA)
    config = load_config(str(path)).providers["real"]
    assert isinstance(config, OpenStackProviderConfig)
    made = OpenStackAdapter(config)
    yield made
    made.stop()


def test_uploaded_image(place: Place, provider: OpenStackProvider, adapter: OpenStackAdapter, tmp_path: Path) -> None:
    """Glance has it byte for byte, with its properties; the node's server runs it; in the end it is gone."""
    # Glance takes the size of the disk from the head. Not a whole number of chunks.
    content = QCOW2_HEAD + os.urandom(3_000_001)
    file = tmp_path / "image.qcow2"
    file.write_bytes(content)
    sums = hashlib.md5(content, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()
    section = adapter.config.diskimages["built"]
    external_id = adapter.uploadImage(section, "built-1", str(file), "qcow2", dict(KEYS), *sums)
    image = place.cloud.connection.image.get_image(external_id)
    assert (image.status, image.size, image.disk_format, image.visibility) == (
        *("active", len(content)),
        *("qcow2", "private"),
    )
    assert (image.checksum, image.hash_value) == (sums[0], hashlib.sha512(content).hexdigest())
    assert {key: image.properties[key] for key in (*KEYS, "purpose")} == {**KEYS, "purpose": "a test"}
    assert image.properties["owner_specified.openstack.sha256"] == sums[1]

    place.znodes.add_build("built", "b1")
    place.znodes.add_upload("built", "b1", "real", external_id=external_id)
    place.launch(provider, extra=EXTRA)
    request = place.fulfilled(place.zuul.submit(["small"]))
    assert place.cloud.server_of(request.nodes[0]).image.id == external_id
    (node,) = place.use(request)
    assert node.username == "zuul"
    place.wait_no_nodes()
    adapter.deleteImage(external_id)
    adapter.deleteImage(external_id)
    place.wait_empty()


def test_upload_that_fails(place: Place, adapter: OpenStackAdapter, tmp_path: Path) -> None:
    """U-9: nothing is left of an upload that Glance refuses."""
    file = tmp_path / "image.qcow2"
    file.write_bytes(b"no image")
    section = adapter.config.diskimages["built"]
    with pytest.raises(Exception, match="400"):
        adapter.uploadImage(section, "built-1", str(file), "no-such-format", dict(KEYS))
    place.wait_empty()
