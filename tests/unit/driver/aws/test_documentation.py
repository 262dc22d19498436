# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/aws says is so."""

from __future__ import annotations

import re
from pathlib import Path

from nodepool.driver.aws.errors import CAPACITY, LOGIN, QUOTA, THROTTLED

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "doc/source/drivers/aws/behaviour.rst").read_text(encoding="utf-8")
#: Calls in the code: ``"ec2", t.READ, "DescribeImages"``; lists of EC2 without the first two.
CALL = re.compile(r'"([a-z0-9-]+)", t\.\w+, "(\w+)"|_list\(\s*"(\w+)"')


def test_permissions_are_those_of_the_calls() -> None:
    """The least that the credentials need. Tags are set by RunInstances, too."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "nodepool/driver/aws").glob("*.py")]
    found = [match for text in texts for match in CALL.findall(text)]
    # What IAM calls the services.
    wanted = {f"{(service or 'ec2').replace('-', '')}:{called or listed}" for service, called, listed in found}
    assert len(wanted) >= 10
    assert set(re.findall(r'^            "(\w+:\w+)"', PAGE, re.MULTILINE)) == wanted


def test_codes_are_those_of_the_code() -> None:
    table = PAGE.partition("What AWS refuses")[2].partition("An instance that ends")[0]
    cells = re.findall(r"^   \* - (``.*)$", table, re.MULTILINE)
    for cell, codes in zip(cells, (QUOTA, CAPACITY, THROTTLED, LOGIN), strict=False):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes
