# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/aws says is so."""

from __future__ import annotations

import re
from pathlib import Path

from nodepool.driver.aws.errors import CAPACITY, LOGIN, QUOTA, THROTTLED

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "doc/source/drivers/aws/behaviour.rst").read_text(encoding="utf-8")
#: Services, as IAM calls them, and the files with their calls.
CALLED = {"ec2": ["client.py"]}


def test_permissions_are_those_of_the_calls() -> None:
    """The least that the credentials need. Tags are set by RunInstances, too."""
    wanted = set()
    for service, files in CALLED.items():
        for name in files:
            text = (ROOT / "nodepool/driver/aws" / name).read_text(encoding="utf-8")
            wanted |= {f"{service}:{operation}" for operation in re.findall(r'"((?:[A-Z][a-z]+){2,})"[,)]', text)}
    wanted = {action for action in wanted if not re.search(r":(Reservations|MaxResults|InstanceIds)$", action)}
    assert set(re.findall(r'^            "(\w+:\w+)"', PAGE, re.MULTILINE)) == wanted


def test_codes_are_those_of_the_code() -> None:
    table = PAGE.partition("What AWS refuses")[2].partition("An instance that ends")[0]
    cells = re.findall(r"^   \* - (``.*)$", table, re.MULTILINE)
    for cell, codes in zip(cells, (QUOTA, CAPACITY, THROTTLED, LOGIN), strict=False):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes
