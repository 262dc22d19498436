# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.types`."""

from __future__ import annotations

import pytest

from nodepool.driver.aws.types import VOLUMES, AccountQuota, QuotaCodes
from tests.unit.driver.aws.support import EC2_QUOTAS

TOLD = QuotaCodes(AccountQuota(found["QuotaCode"], found["QuotaName"], found["Value"]) for found in EC2_QUOTAS)
STANDARD, STANDARD_SPOT = "L-1216C47A", "L-34B43A08"


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        *(
            (f"{family}.large", STANDARD, STANDARD_SPOT)
            for family in ("a1", "c7gn", "d3", "h1", "i3", "m5", "r6", "t3")
        ),
        ("z1d.large", STANDARD, STANDARD_SPOT),
        ("dl1.24xlarge", "L-6E869C2A", "L-85EED4F7"),
        ("f1.2xlarge", "L-74FC7D96", "L-88CF9481"),
        ("g5.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("vt1.3xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("u-6tb1.metal", "L-43DA4232", None),
        ("inf2.xlarge", "L-1945791B", "L-B5D1601B"),
        ("p3.2xlarge", "L-417A185B", "L-7212CCBC"),
        ("x1e.xlarge", "L-7295265B", "L-E3A00192"),
        ("trn1.2xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("hpc6a.48xlarge", "L-F7808C92", None),
    ],
)
@pytest.mark.parametrize("codes", [QuotaCodes(), TOLD], ids=["released", "told"])
def test_families(codes: QuotaCodes, name: str, on_demand: str, spot: str | None) -> None:
    """AW-12: with the names of Service Quotas and without them."""
    assert (codes.of_instance(name, spot=False), codes.of_instance(name, spot=True)) == (on_demand, spot)


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        ("gr6.4xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("im4gn.large", STANDARD, STANDARD_SPOT),
        ("is4gen.large", STANDARD, STANDARD_SPOT),
        ("u7i-12tb.224xlarge", "L-43DA4232", None),
        ("trn2.48xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("p5en.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("qx1.large", "L-NEWNEWNE", None),
        ("mac2.metal", None, None),
        ("7.large", None, None),
    ],
)
def test_families_that_released_nodepool_does_not_know(name: str, on_demand: str | None, spot: str | None) -> None:
    """AW-12: by the names of the quotas; a generation may have one of its own."""
    assert (TOLD.of_instance(name, spot=False), TOLD.of_instance(name, spot=True)) == (on_demand, spot)


def test_hosts() -> None:
    """AW-13: one code for each family."""
    assert TOLD.of_host("mac2.metal") == "L-MACMACMA"
    assert TOLD.of_host("c5.large") is QuotaCodes().of_host("mac2.metal") is None


def test_volumes() -> None:
    """AW-13: storage and IOPS."""
    assert VOLUMES["io2"] == ("L-09BD8365", "L-8D977E7E")
    assert VOLUMES["gp3"] == ("L-7A658B76", None)
