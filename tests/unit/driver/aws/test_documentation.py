# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/aws says is so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nodepool.driver.aws.errors import CAPACITY, LOGIN, QUOTA, THROTTLED

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "doc/source/drivers/aws"
PAGE = (PAGES / "behaviour.rst").read_text(encoding="utf-8")
#: Modules whose calls are those of uploads.
IMAGES = ("image_calls.py", "object_store.py")
#: Calls in the code: ``"ec2", t.READ, "DescribeImages"``; lists of EC2 without the first two.
CALL = re.compile(r'"([a-z0-9-]+)", t\.\w+, "(\w+)"|_list\(\s*"(\w+)"')
#: Calls of S3: ``_call("HeadObject"``.
OBJECT_CALL = re.compile(r'_call\("(\w+)"')
#: What IAM calls them; those that s3transfer makes are in the first.
OBJECT_ACTIONS = {
    "AbortMultipartUpload": {"AbortMultipartUpload", "PutObject", "PutObjectTagging"},
    "DeleteObject": {"DeleteObject"},
    "HeadObject": {"GetObject"},
    "ListMultipartUploads": {"ListBucketMultipartUploads"},
    "ListObjectsV2": {"ListBucket"},
}


def calls(paths: Iterable[Path]) -> set[str]:
    """Calls that some modules make, as IAM calls them."""
    found = [match for path in paths for match in CALL.findall(path.read_text(encoding="utf-8"))]
    return {f"{(service or 'ec2').replace('-', '')}:{called or listed}" for service, called, listed in found}


def allowed(page: str) -> set[str]:
    """Actions of the policy on a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return set(re.findall(r'^            "(\w+:\w+)"', text, re.MULTILINE))


def test_permissions_are_those_of_the_calls() -> None:
    """The least that the credentials need. Tags are set by RunInstances, too."""
    modules = (ROOT / "nodepool/driver/aws").glob("*.py")
    wanted = calls(path for path in modules if path.name not in IMAGES)
    assert len(wanted) >= 10
    assert allowed("behaviour.rst") == wanted


def test_permissions_for_uploads() -> None:
    """The same for images. They get their tags with the calls of instances."""
    made = calls(ROOT / "nodepool/driver/aws" / name for name in IMAGES)
    assert len(made) >= 12
    sent = OBJECT_CALL.findall((ROOT / "nodepool/driver/aws/object_store.py").read_text(encoding="utf-8"))
    objects = {f"s3:{action}" for called in sent for action in OBJECT_ACTIONS[called]}
    assert allowed("images.rst") == made | objects | {"ec2:CreateTags"}


def test_codes_are_those_of_the_code() -> None:
    table = PAGE.partition("What AWS refuses")[2].partition("An instance that ends")[0]
    cells = re.findall(r"^   \* - (``.*)$", table, re.MULTILINE)
    for cell, codes in zip(cells, (QUOTA, CAPACITY, THROTTLED, LOGIN), strict=False):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes
