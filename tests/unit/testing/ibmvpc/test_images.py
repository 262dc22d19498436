# SPDX-License-Identifier: Apache-2.0
"""Object storage and images of the simulated region."""

from __future__ import annotations

import hashlib
from typing import Any
from xml.etree import ElementTree

import pytest
import requests
from ibm_vpc.vpc_v1 import Image

from nodepool.testing.ibmvpc import ImageImportRule
from tests.unit.testing.ibmvpc.conftest import Caller, Refused

MIB = 1024 * 1024
QCOW2 = b"QFI\xfb" + bytes(100)
SOURCE = "cos://us-south/images/npimage1.qcow2"


def cos(caller: Caller, method: str, path: str, data: bytes | str = b"", token: str = "") -> requests.Response:
    """One call of object storage."""
    headers = {"Authorization": f"Bearer {token or caller.token}"}
    return requests.request(method, f"{caller.simulator.url}/{path}", data=data, headers=headers, timeout=10)


def texts(answer: requests.Response, name: str) -> list[str]:
    """Of all elements with the name."""
    found = ElementTree.fromstring(answer.content).iter()
    return [element.text or "" for element in found if element.tag.rpartition("}")[2] == name]


def completed(tags: list[str]) -> str:
    """The body that ends an upload in parts.

    :param tags: the entity tags of its parts.
    """
    parts = (f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>" for number, tag in enumerate(tags, 1))
    return f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>"


def body(name: str = "npimage1", href: str = SOURCE, system: str = "debian-12-amd64") -> dict[str, Any]:
    return {"name": name, "file": {"href": href}, "operating_system": {"name": system}}


class TestStorage:
    def test_parts(self, caller: Caller) -> None:
        """An upload in parts is one object; its parts are listed while it is open."""
        (upload_id,) = texts(cos(caller, "POST", "images/a.qcow2?uploads"), "UploadId")
        first = QCOW2 + bytes(5 * MIB)
        tags = [
            cos(caller, "PUT", f"images/a.qcow2?partNumber={number}&uploadId={upload_id}", data).headers["ETag"]
            for number, data in ((1, first), (2, b"end"))
        ]
        listed = cos(caller, "GET", f"images/a.qcow2?uploadId={upload_id}")
        assert (texts(listed, "PartNumber"), texts(listed, "ETag")) == (["1", "2"], tags)
        assert texts(cos(caller, "GET", "images?uploads&prefix=a"), "UploadId") == [upload_id]
        path = f"images/a.qcow2?uploadId={upload_id}"
        wrong = cos(caller, "POST", path, completed(tags[::-1]))
        assert (wrong.status_code, texts(wrong, "Code")) == (400, ["InvalidPart"])
        cos(caller, "POST", path, completed(tags)).raise_for_status()
        size = cos(caller, "HEAD", "images/a.qcow2").headers["Content-Length"]
        assert int(size) == len(first) + 3
        assert texts(cos(caller, "GET", "images?list-type=2"), "Key") == ["a.qcow2"]
        assert texts(cos(caller, "GET", "images?uploads"), "UploadId") == []

    def test_bucket(self, caller: Caller) -> None:
        """Where it is; it may be empty; strangers are not let in."""
        assert texts(cos(caller, "GET", "images?location"), "LocationConstraint") == ["us-south-standard"]
        assert texts(cos(caller, "GET", "images?list-type=2"), "Key") == []
        assert cos(caller, "HEAD", "images").status_code == 200
        missing = cos(caller, "GET", "other?list-type=2")
        assert (missing.status_code, texts(missing, "Code")) == (404, ["NoSuchBucket"])
        stranger = cos(caller, "GET", "images?list-type=2", token="other")
        assert (stranger.status_code, texts(stranger, "Code")) == (403, ["AccessDenied"])


class TestImages:
    def test_life(self, caller: Caller, refused: Refused) -> None:
        """Pending, available with the checksum of the object, gone."""
        cos(caller, "PUT", "images/npimage1.qcow2", QCOW2)
        made = caller.vpc.create_image(body()).get_result()
        shown = caller.image(made["id"])
        assert (shown.status, shown.status_reasons[0].code) == ("pending", "image_request_in_progress")
        assert refused(caller.create, image={"id": made["id"]}) == (400, "invalid_state")
        assert refused(caller.vpc.delete_image, made["id"]) == (409, "image_request_in_progress")
        caller.clock.now += 1
        shown = caller.image(made["id"])
        assert (shown.status, shown.visibility, shown.operating_system.name) == (
            "available",
            "private",
            "debian-12-amd64",
        )
        assert shown.file.checksums is not None
        assert shown.file.checksums.sha256 == hashlib.sha256(QCOW2).hexdigest()
        caller.create(image={"id": made["id"]})
        assert caller.vpc.update_image(made["id"], {"name": "renamed"}).get_result()["name"] == "renamed"
        caller.vpc.delete_image(made["id"])
        assert refused(caller.vpc.delete_image, made["id"]) == (409, "invalid_state")
        caller.clock.now += 1
        assert refused(caller.vpc.delete_image, made["id"]) == (404, "not_found")

    def test_failures(self, caller: Caller) -> None:
        """By a rule, of an object that is no image, and because the object is gone."""
        caller.simulator.change(imports=[ImageImportRule(name="npimage1", code="image_provisioned_size_unsupported")])
        codes = []
        for number, data in ((1, QCOW2), (2, b"rubbish"), (3, QCOW2)):
            name = f"npimage{number}"
            cos(caller, "PUT", f"images/{name}.qcow2", data)
            made = caller.vpc.create_image(body(name, SOURCE.replace("npimage1", name))).get_result()
            if number == 3:
                cos(caller, "DELETE", f"images/{name}.qcow2")
            caller.clock.now += 1
            shown = caller.image(made["id"])
            assert shown.status == "failed"
            codes.append(shown.status_reasons[0].code)
        assert codes == ["image_provisioned_size_unsupported", "image_data_corrupted", "image_data_corrupted"]

    @pytest.mark.parametrize(
        ("given", "code"),
        [
            (body(href="https://us-south/images/npimage1.qcow2"), "cos_scheme_uri_invalid"),
            (body(href="cos://us-south/images/folder/npimage1.qcow2"), "cos_scheme_uri_invalid"),
            (body(href="cos://us-south/images/npimage1.raw"), "cos_scheme_uri_invalid"),
            (body(href="cos://us-east/images/npimage1.qcow2"), "cos_region_mismatch"),
            (body(href="cos://us-south/images/other.qcow2"), "cos_not_found"),
            (body(href="cos://us-south/other/npimage1.qcow2"), "cos_not_found"),
            (body(system="other"), "not_found"),
            (body("taken"), "validation_unique_failed"),
        ],
    )
    def test_refusals(self, caller: Caller, refused: Refused, given: dict[str, Any], code: str) -> None:
        cos(caller, "PUT", "images/npimage1.qcow2", QCOW2)
        with caller.simulator.cloud() as cloud:
            cloud.add_image("taken")
        assert refused(caller.vpc.create_image, given) == (400, code)

    def test_name(self, caller: Caller, refused: Refused) -> None:
        """It can be changed, also while the import is under way."""
        cos(caller, "PUT", "images/npimage1.qcow2", QCOW2)
        made = caller.vpc.create_image(body()).get_result()
        with caller.simulator.cloud() as cloud:
            cloud.add_image("taken")
        assert refused(caller.vpc.update_image, made["id"], {"name": "taken"}) == (400, "validation_unique_failed")
        Image.from_dict(caller.vpc.update_image(made["id"], {"name": "npimage2"}).get_result())
        caller.clock.now += 1
        shown = caller.image(made["id"])
        assert (shown.name, shown.status) == ("npimage2", "available")

    def test_limits(self, caller: Caller, refused: Refused) -> None:
        """Those of IBM cannot be deleted, and count against no quota."""
        (public, *_others) = caller.vpc.list_images(visibility="public").get_result()["images"]
        assert refused(caller.vpc.delete_image, public["id"]) == (403, "invalid_action_for_public_image")
        cos(caller, "PUT", "images/npimage1.qcow2", QCOW2)
        caller.simulator.change(quotas={"images": 1})
        caller.vpc.create_image(body())
        assert refused(caller.vpc.create_image, body("more")) == (400, "over_quota")
