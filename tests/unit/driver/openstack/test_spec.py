# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.create`: what the cloud is asked for."""

from __future__ import annotations

import base64
from collections.abc import Callable

from tests.unit.driver.openstack.support import METADATA, StubCloud, body, label_section, machine

MakeCloud = Callable[..., StubCloud]


def test_body(make_cloud: MakeCloud) -> None:
    """reference/configuration 7: every option of a label and its pool reaches the cloud."""
    label = label_section(
        **{
            "key-name": "key",
            "userdata": "#cloud-config",
            "networks": ["internal"],
            "instance-properties": {"a": 1, "nodepool_node_id": "forged", "groups": "forged"},
            "dynamic-instance-properties": {"who": "{request.requestor} {request.labels}", "bad": "{request.nope.x}"},
        }
    )
    images = [{"name": "debian", "config-drive": True}]
    cloud = make_cloud(label, pool={"security-groups": ["sg"]}, **{"cloud-images": images})
    machine(cloud).advance()
    assert body(cloud) == {
        "name": "np0000000042",
        "flavorRef": "f1",
        "imageRef": "i1",
        "key_name": "key",
        "availability_zone": "az1",
        "config_drive": True,
        "user_data": base64.b64encode(b"#cloud-config").decode(),
        "networks": [{"uuid": "n1"}],
        "security_groups": [{"name": "sg"}],
        "metadata": {"a": "1", "who": "zuul ['small']", "groups": "cloud-a,debian,small", **METADATA},
    }


def test_what_is_not_configured_is_not_sent(cloud: StubCloud) -> None:
    machine(cloud, image_id="upload-1", az=None).advance()
    assert sorted(body(cloud)) == ["flavorRef", "imageRef", "metadata", "name"]
    assert body(cloud)["imageRef"] == "upload-1"


def test_default_network_of_clouds_yaml(make_cloud: MakeCloud) -> None:
    """openstacksdk's rule: without networks the ``default_interface`` is used."""
    cloud = make_cloud(settings={"networks": [{"name": "internal", "default_interface": True}]})
    machine(cloud).advance()
    assert body(cloud)["networks"] == [{"uuid": "n1"}]
