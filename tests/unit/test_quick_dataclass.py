# SPDX-License-Identifier: Apache-2.0
"""A quick dataclass behaves as one of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from nodepool import fast_json
from nodepool.quick_dataclass import dataclass


@dataclass(frozen=True)
class Quick:
    """Ours."""

    kind: ClassVar[str] = "quick"

    name: str
    size: int = 1
    parts: Sequence[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)

    @cached_property
    def twice(self) -> int:
        return 2 * self.size


@dataclass(frozen=True)
class More(Quick):
    """With a field that is only given by its name."""

    last: bool = field(default=False, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Plain:
    """Theirs."""

    kind: ClassVar[str] = "plain"

    name: str
    size: int = 1
    parts: Sequence[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)


MAKERS: list[Callable[[Any], Any]] = [
    lambda cls: cls("a"),
    lambda cls: cls("a", 2, ("x",), "n"),
    lambda cls: cls(name="a", parts=["x"]),
    lambda cls: cls("a", size=3),
    lambda cls: dataclasses.replace(cls("a", 2), name="b"),
    lambda cls: pickle.loads(pickle.dumps(cls("a", 4))),  # noqa: S301
    lambda cls: copy.deepcopy(cls("a", 5, ["x"])),
]


@pytest.mark.parametrize("make", MAKERS)
def test_values(make: Callable[[Any], Any]) -> None:
    ours, theirs = make(Quick), make(Plain)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert list(vars(ours)) == list(vars(theirs))
    assert repr(ours) == repr(theirs).replace("Plain", "Quick")
    assert fast_json.dumps(ours) == fast_json.dumps(theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(),
        lambda cls: cls(size=1),
        lambda cls: cls("a", 1, (), "", "too many"),
        lambda cls: cls("a", name="b"),
        lambda cls: cls("a", color="red"),
    ],
)
def test_wrong_arguments(make: Callable[[Any], Any]) -> None:
    for cls in (Quick, Plain):
        with pytest.raises(TypeError):
            make(cls)


def test_comparison() -> None:
    """By the fields that count, and only with objects of the same class."""
    one = Quick("a", parts=("x",))
    assert one == Quick("a", parts=("x",), note="another")
    assert one.twice == 2
    assert one == Quick("a", parts=("x",))
    assert one != Quick("b", parts=("x",))
    assert one != More("a", parts=("x",))
    other: object = Plain("a", parts=("x",))
    assert one != other
    assert len({one, Quick("a", parts=("x",)), Quick("b", parts=())}) == 2
    assert hash(one) == hash(Quick("a", parts=("x",), note="another"))


def test_each_object_has_its_own_default() -> None:
    assert Quick("a").parts is not Quick("b").parts


def test_frozen() -> None:
    one = Quick("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert one.name == "a"


def test_subclass() -> None:
    assert More("a", 2, last=True) == dataclasses.replace(More("a", 2), last=True)
    anything: Any = More
    with pytest.raises(TypeError):
        anything("a", 2, (), "", True)


def test_own_methods_stay() -> None:
    @dataclass(frozen=True)
    class Named:
        """Has a text of its own."""

        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert repr(Named("a")) == "<a>"


def test_only_frozen_classes() -> None:
    with pytest.raises(TypeError):
        dataclass(frozen=False)
