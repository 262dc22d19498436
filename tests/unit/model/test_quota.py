# SPDX-License-Identifier: Apache-2.0
"""nodepool.model.quota: arithmetic of named resources (reference/driver 12)."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.quota import QuotaInformation

NAMES = st.sampled_from(["cores", "instances", "ram", "volumes", "L-1216C47A"])
AMOUNTS = st.integers(0, 1000)


def use(**amounts: float) -> QuotaInformation:
    return QuotaInformation(**amounts)


def test_defaults_of_a_use_and_of_a_limit() -> None:
    assert QuotaInformation(cores=2).quota == {"compute": {"cores": 2, "instances": 0, "ram": 0}}
    limit = QuotaInformation(cores=2, default=math.inf)
    assert limit.quota == {"compute": {"cores": 2, "instances": math.inf, "ram": math.inf}}


def test_extra_names() -> None:
    info = QuotaInformation(instances=1, **{"volume-gb": 80})
    assert info.get_resources() == {"cores": 0, "instances": 1, "ram": 0, "volume-gb": 80}
    assert QuotaInformation(volumes=None).quota["compute"]["volumes"] == 0


def test_add_and_subtract_take_defaults_for_missing_names() -> None:
    limit = QuotaInformation(cores=10, default=math.inf)
    limit.subtract(use(cores=4, volumes=3))
    assert limit.quota["compute"] == {"cores": 6, "instances": math.inf, "ram": math.inf, "volumes": math.inf}
    need = use(cores=1)
    need.add(use(cores=2, volumes=3))
    assert need.quota["compute"] == {"cores": 3, "instances": 0, "ram": 0, "volumes": 3}
    need.subtract(use(ram=1))
    assert need.quota["compute"]["ram"] == -1


def test_unlimited_minus_unlimited() -> None:
    limit = QuotaInformation(default=math.inf)
    limit.subtract(QuotaInformation(default=math.inf))
    assert limit.non_negative()
    assert limit.quota["compute"]["cores"] == math.inf


@pytest.mark.parametrize(("cores", "fits"), [(0, True), (-1, False), (math.inf, True)])
def test_non_negative(cores: float, fits: bool) -> None:
    assert use(cores=cores).non_negative() is fits


def test_resources_have_no_infinity() -> None:
    """reference/zookeeper 5.1: never emit non-finite numbers in resources."""
    resources = QuotaInformation(cores=2, default=math.inf).get_resources()
    assert json.dumps(resources, allow_nan=False) == '{"cores": 2}'


def test_from_resources_skips_what_is_no_number() -> None:
    info = QuotaInformation.from_resources(
        {"cores": 2, "ram": "8G", "instances": True, "volumes": None, "gpu": 1.5, "x": math.inf, "y": 10**400}
    )
    assert info.quota["compute"] == {"cores": 2, "ram": 0, "instances": 0, "gpu": 1.5}


@given(st.dictionaries(NAMES, AMOUNTS))
def test_resources_round_trip(resources: dict[str, float]) -> None:
    expected = {"cores": 0, "instances": 0, "ram": 0, **resources}
    assert QuotaInformation.from_resources(resources).get_resources() == expected


@given(st.dictionaries(NAMES, AMOUNTS), st.dictionaries(NAMES, AMOUNTS))
def test_subtract_undoes_add(first: dict[str, float], second: dict[str, float]) -> None:
    info = QuotaInformation.from_resources(first)
    before = {name: amount for name, amount in info.quota["compute"].items() if amount}
    other = QuotaInformation.from_resources(second)
    info.add(other)
    info.subtract(other)
    assert {name: amount for name, amount in info.quota["compute"].items() if amount} == before


def test_copy_is_independent_and_equal() -> None:
    info = use(cores=1)
    copy = info.copy()
    assert copy == info
    copy.add(use(cores=1))
    assert copy != info
    assert info.quota["compute"]["cores"] == 1
    assert (info == 1) is False
