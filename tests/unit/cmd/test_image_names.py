# SPDX-License-Identifier: Apache-2.0
"""Mistakes in names of images, builds and uploads say what there is (reference/commands 2.2)."""

from __future__ import annotations

import pytest

from nodepool.cmd.app import CommandError
from nodepool.cmd.image_changes import known_build, known_image, known_upload, listed
from nodepool.model.image import BuildView, UploadView
from tests.support.image_records import build_view, image_view, images_view, upload

IMAGES = images_view(
    image_view("deb-12", build_view("deb-12", "b1", [upload("deb-12", "b1", "lab")]), build_view("deb-12", "b2")),
    image_view("fed", build_view("fed", "b3")),
)


def test_what_is_there_is_found() -> None:
    assert known_image(IMAGES, "fed").name == "fed"
    image, build = known_build(IMAGES, "deb-12-b2")
    assert (image.name, build.id) == ("deb-12", "b2")
    assert known_upload(IMAGES, "deb-12", "b1", "lab", "0000000001").record is not None


def test_unreadable_records_are_found() -> None:
    build = BuildView("b1", None, uploads={"lab": (UploadView("0000000001", None),)})
    images = images_view(image_view("deb", build))
    assert known_build(images, "deb-b1")[1].record is None
    assert known_upload(images, "deb", "b1", "lab", "0000000001").record is None


@pytest.mark.parametrize("name", ["nonsense", "", "../nodes"])
def test_image(name: str) -> None:
    with pytest.raises(CommandError, match="images: deb-12, fed"):
        known_image(IMAGES, name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fed-b1", "the build with this id is deb-12-b1"),
        ("b1", "the build with this id is deb-12-b1"),
        ("deb-12-zz", "builds of deb-12: deb-12-b1, deb-12-b2"),
        ("deb-12", "builds of deb-12: deb-12-b1, deb-12-b2"),
        ("nonsense", "images: deb-12, fed"),
        ("", "images: deb-12, fed"),
    ],
)
def test_build(name: str, hint: str) -> None:
    """The text of released Nodepool, and one more line."""
    with pytest.raises(CommandError) as error:
        known_build(IMAGES, name)
    assert (str(error.value), error.value.answer, error.value.hint) == (f"Build {name} not found", True, hint)


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        (("odd", "b1", "lab", "0000000001"), "images: deb-12, fed"),
        (("deb-12", "b3", "lab", "0000000001"), "build b3 is one of fed"),
        (("deb-12", "zz", "lab", "0000000001"), "build ids of deb-12: b1, b2"),
        (("deb-12", "b1", "odd", "0000000001"), "providers with uploads of build b1: lab"),
        (("deb-12", "b1", "lab", "1"), "uploads of build b1 to lab: 0000000001"),
        (("fed", "b3", "lab", "1"), "providers with uploads of build b3: none"),
    ],
)
def test_upload(where: tuple[str, str, str, str], hint: str) -> None:
    with pytest.raises(CommandError) as error:
        known_upload(IMAGES, *where)
    assert (str(error.value), error.value.answer, error.value.hint) == ("Image upload not found", True, hint)


def test_long_lists_are_cut() -> None:
    assert listed("images", map(str, range(25))).endswith("18, 19 and 5 more")
