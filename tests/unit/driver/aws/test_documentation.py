# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/aws says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "doc/source/drivers/aws").glob("*.rst")}
#: The code of the driver.
CODE = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "nodepool/driver/aws").rglob("*.py"))
#: Calls in the code: ``"ec2", t.READ, "DescribeImages"``; most of those of EC2 without these; imports in a table.
CALL = re.compile(
    r'"([a-z0-9-]+)", (?:t\.)?[A-Z]+, "(\w+)"|(?:\.(?:listed|_read|_change)\(\s*|(?:True|False): \()"(\w+)"'
    r'|"(Describe\w+)", "Import'
)
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
#: Calls of uploads begin so, or are about one of these. Both policies have the tags.
OF_UPLOADS = re.compile(r"s3:|ebs:|ec2:(Cancel|Deregister|Import|Register)|Snapshot|Import")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^\.\. code-block:: {language}\n\n((?: +.*\n|\n)+)", text, re.MULTILINE)


def test_policies() -> None:
    """The least that the credentials need, each action once: of nodes, and of uploads."""
    made = {
        f"{(service or 'ec2').replace('-', '')}:{called or listed or imports}"
        for service, called, listed, imports in CALL.findall(CODE)
    }
    objects = {f"s3:{action}" for called in OBJECT_CALL.findall(CODE) for action in OBJECT_ACTIONS[called]}
    uploads = {action for action in made | objects if OF_UPLOADS.search(action)}
    assert len(made - uploads) >= 10
    assert len(uploads) >= 20
    for page, wanted in (("permissions.rst", made - uploads), ("images.rst", uploads)):
        (block,) = blocks(TEXTS[page], "json")
        actions = [action for statement in json.loads(block)["Statement"] for action in statement["Action"]]
        assert len(actions) == len(set(actions))
        assert wanted <= set(actions) <= wanted | {"ec2:CreateTags", "ec2:DescribeImages"}, page
