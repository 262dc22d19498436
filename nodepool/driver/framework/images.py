# SPDX-License-Identifier: Apache-2.0
"""Configuration of images, for drivers whose labels name a ``diskimage`` or a ``cloud-image``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nodepool.driver.config import ImageSettings

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage


class DiskImageSettings(ImageSettings):
    """An entry of a provider's ``diskimages``: an image that the builder uploads there.

    :param image: the top-level image; says how to log in.
    """

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
        self.python_path = image.python_path
        self.shell_type = image.shell_type
        #: Do not upload.
        self.pause: bool = data.get("pause", False)
        #: Properties of the image in the cloud.
        self.meta: dict[str, Any] = data.get("meta") or {}


# -- checks for schemas: each returns what it is given, or raises voluptuous.Invalid --


def one_image(label: dict[str, Any]) -> dict[str, Any]:
    """For a label: it has exactly one of the two keys."""
    import voluptuous as v

    if ("diskimage" in label) == ("cloud-image" in label):
        raise v.Invalid("exactly one of diskimage and cloud-image is needed")
    return label


def known_images(provider: dict[str, Any]) -> dict[str, Any]:
    """For a whole provider section: it has the images that its labels name."""
    import voluptuous as v

    problems = [v.Invalid(text, path=path) for path, text in _unknown_images(provider)]
    if problems:
        raise v.MultipleInvalid(problems)
    return provider


def _unknown_images(provider: dict[str, Any]) -> Iterator[tuple[list[Any], str]]:
    """Labels with an image that the provider does not have: path inside the section, and what is wrong."""
    for key, section in (("diskimage", "diskimages"), ("cloud-image", "cloud-images")):
        names = {image["name"] for image in provider.get(section) or []}
        for pool_index, pool in enumerate(provider.get("pools") or []):
            for index, label in enumerate(pool.get("labels") or []):
                name = label.get(key)
                if name is not None and name not in names:
                    text = f"the provider has no {key} {name!r}; add it to its {section}"
                    yield ["pools", pool_index, "labels", index, key], text
