# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/aws says is so."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.driver.aws.errors import CAPACITY, LOGIN, QUOTA, REMEDIES, THROTTLED
from nodepool.driver.aws.facts import places_of
from tests.unit.driver.aws.support import load

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "doc/source/drivers/aws"
PAGE = (PAGES / "behaviour.rst").read_text(encoding="utf-8")
#: Modules whose calls are those of uploads.
IMAGES = ("image_calls.py", "object_store.py")
#: Calls in the code: ``"ec2", t.READ, "DescribeImages"``; lists of EC2 without the first two.
CALL = re.compile(r'"([a-z0-9-]+)", t\.\w+, "(\w+)"|_list\(\s*"(\w+)"')
#: Calls of S3: ``_call("HeadObject"``.
OBJECT_CALL = re.compile(r'_(?:call|pages)\("(\w+)"')
#: What IAM calls them.
OBJECT_ACTIONS = {
    "AbortMultipartUpload": {"AbortMultipartUpload"},
    "CompleteMultipartUpload": {"PutObject"},
    "CreateMultipartUpload": {"PutObject", "PutObjectTagging"},
    "DeleteObject": {"DeleteObject"},
    "HeadObject": {"GetObject"},
    "ListMultipartUploads": {"ListBucketMultipartUploads"},
    "ListObjectsV2": {"ListBucket"},
    "ListParts": {"ListMultipartUploadParts"},
    "UploadPart": {"PutObject"},
}


def calls(paths: Iterable[Path]) -> set[str]:
    """Calls that some modules make, as IAM calls them."""
    found = [match for path in paths for match in CALL.findall(path.read_text(encoding="utf-8"))]
    return {f"{(service or 'ec2').replace('-', '')}:{called or listed}" for service, called, listed in found}


def allowed(page: str) -> set[str]:
    """Actions of the policy on a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return set(re.findall(r'^            "(\w+:\w+)"', text, re.MULTILINE))


def providers() -> Iterable[dict[str, Any]]:
    """Provider sections of all examples."""
    for path in sorted(PAGES.glob("*.rst")):
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"^\.\. code-block:: yaml\n\n((?: +.*\n|\n)+)", text, re.MULTILINE):
            yield from yaml.safe_load(textwrap.dedent(block)).get("providers", ())


@pytest.mark.parametrize("data", list(providers()), ids=lambda data: data["name"])
def test_examples_are_valid(data: dict[str, Any]) -> None:
    """They can be loaded, and their launches said."""
    loaded = load(data)
    labels = [label for pool in loaded.pools.values() for label in pool.labels.values()]
    assert labels
    assert all(places_of(label) for label in labels)


def test_policies_are_valid() -> None:
    """Each action once, and nothing but JSON."""
    for page in ("permissions.rst", "images.rst"):
        text = (PAGES / page).read_text(encoding="utf-8")
        (block,) = re.findall(r"^\.\. code-block:: json\n\n((?: +.*\n|\n)+)", text, re.MULTILINE)
        statements = json.loads(block)["Statement"]
        actions = [action for statement in statements for action in statement["Action"]]
        assert len(actions) == len(set(actions))
        assert set(actions) == allowed(page)


def test_permissions_are_those_of_the_calls() -> None:
    """The least that the credentials need. Tags are set by RunInstances, too."""
    modules = (ROOT / "nodepool/driver/aws").glob("*.py")
    wanted = calls(path for path in modules if path.name not in IMAGES)
    assert len(wanted) >= 10
    assert allowed("permissions.rst") == wanted


def test_permissions_for_uploads() -> None:
    """The same for images. They get their tags with the calls of instances."""
    made = calls(ROOT / "nodepool/driver/aws" / name for name in IMAGES)
    assert len(made) >= 12
    sent = OBJECT_CALL.findall((ROOT / "nodepool/driver/aws/image_store.py").read_text(encoding="utf-8"))
    objects = {f"s3:{action}" for called in sent for action in OBJECT_ACTIONS[called]}
    assert allowed("images.rst") == made | objects | {"ec2:CreateTags"}


def test_codes_are_those_of_the_code() -> None:
    table = PAGE.partition("What AWS refuses")[2].partition("An instance that ends")[0]
    cells = re.findall(r"^   \* - (``.*)$", table, re.MULTILINE)
    for cell, codes in zip(cells, (QUOTA, CAPACITY, THROTTLED, LOGIN), strict=False):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes


def test_each_code_with_a_remedy_is_told() -> None:
    """Troubleshooting has each of them, or the errors of images."""
    told = "".join((PAGES / page).read_text(encoding="utf-8") for page in ("troubleshooting.rst", "images.rst"))
    assert [code for code in REMEDIES if f"``{code}``" not in told] == []
