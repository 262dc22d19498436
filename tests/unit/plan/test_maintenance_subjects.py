# SPDX-License-Identifier: Apache-2.0
"""What an operator means who names something."""

from __future__ import annotations

import pytest

from nodepool.plan.maintenance import Subject, UnclearSubject, find

KINDS = ("provider", "pool", "label", "launcher")
KNOWN = {
    "provider": {"cloud-1", "cloud-2", "gpu"},
    "pool": {"cloud-1/main", "cloud-1/big", "cloud-2/main"},
    "label": {"debian", "gpu"},
    "launcher": {"l1.example.com", "l2.example.com"},
}


@pytest.mark.parametrize(
    ("name", "kinds", "expected"),
    [
        ("cloud-1", KINDS, Subject("provider", "cloud-1")),
        ("cloud-1/main", KINDS, Subject("pool", "cloud-1/main")),
        ("big", KINDS, Subject("pool", "cloud-1/big")),
        ("l1", KINDS, Subject("launcher", "l1.example.com")),
        ("gpu", ("label",), Subject("label", "gpu")),
    ],
)
def test_found(name: str, kinds: tuple[str, ...], expected: Subject) -> None:
    assert find(name, kinds, KNOWN) == expected


@pytest.mark.parametrize(
    ("name", "kinds", "text"),
    [
        ("main", KINDS, "'main' may be pool cloud-1/main, pool cloud-2/main: say which"),
        ("gpu", KINDS, "'gpu' may be provider gpu, label gpu: say which"),
    ],
)
def test_several(name: str, kinds: tuple[str, ...], text: str) -> None:
    with pytest.raises(UnclearSubject) as caught:
        find(name, kinds, KNOWN)
    assert (str(caught.value), caught.value.unknown) == (text, False)


def test_none() -> None:
    with pytest.raises(
        UnclearSubject, match=r"no label 'debain', did you mean 'debian'\? \(labels: debian, gpu\)"
    ) as one:
        find("debain", ["label"], KNOWN)
    assert one.value.unknown
    with pytest.raises(UnclearSubject, match="no provider, pool, label or launcher 'nothing'"):
        find("nothing", KINDS, KNOWN)
    with pytest.raises(UnclearSubject, match="no label is known: does any launcher run"):
        find("debian", ["label"], {})


def test_what_is_not_paused_is_not_said_not_to_exist() -> None:
    """``resume`` knows only what is paused."""
    with pytest.raises(UnclearSubject) as caught:
        find("cloud-2", KINDS, {"provider": {"cloud-1"}}, "paused or drained")
    assert str(caught.value).startswith("no provider, pool, label or launcher 'cloud-2' is paused or drained")
    with pytest.raises(UnclearSubject, match=r"^no pool is paused or drained$"):
        find("main", ["pool"], {"provider": {"cloud-1"}}, "paused or drained")


def test_few_of_many_are_told() -> None:
    with pytest.raises(UnclearSubject) as caught:
        find("x", ["host"], {"host": {f"zuul@h{number:02}:22" for number in range(12)}})
    assert "h09:22 ...)" in str(caught.value)
    assert "h10" not in str(caught.value)
