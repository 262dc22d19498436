# SPDX-License-Identifier: Apache-2.0
"""Configuration of images, for drivers whose labels name a ``diskimage`` or a ``cloud-image``."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.config import ConfigPool, ImageSettings, LabelSettings
from nodepool.driver.framework.raw_sections import mappings
from nodepool.exceptions import ConfigError
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, FLAG, REQUIRED, key

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage


class DiskImageSettings(ImageSettings):
    """An entry of a provider's ``diskimages``: an image that the builder uploads there.

    :param image: the top-level image; says how to log in.
    """

    without_keys: ClassVar[tuple[str, ...]] = ("username", "python-path", "shell-type")

    name: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Of an image in the top-level ``diskimages``, which also says how to log in: ``username``, ``python-path``, "
        "``shell-type``.",
    )
    pause: bool = key(FLAG, False, "Do not upload it here.")
    meta: dict[str, Any] = key(
        ANY_MAPPING,
        {},
        "Properties of the image in the cloud, e.g. ``hw_disk_bus: scsi``; they win over the ``metadata`` of the "
        "top-level image.",
    )

    def __init__(self, data: dict[str, Any], image: DiskImage) -> None:
        super().__init__(data, username=image.username)
        self.python_path = image.python_path
        self.shell_type = image.shell_type


def one_image(label: dict[str, Any]) -> dict[str, Any]:
    """Check for the schema of a label: it has exactly one of the two keys. Else raises voluptuous.Invalid."""
    import voluptuous as v

    if ("diskimage" in label) == ("cloud-image" in label):
        raise v.Invalid("exactly one of diskimage and cloud-image is needed")
    return label


class ImageLabel(LabelSettings):
    """A label with an image of its provider, which has ``diskimages`` and ``cloud_images``: name -> image.

    :param data: the section in the file.
    :raises ConfigError: the provider does not have the image.
    """

    checks: ClassVar[tuple[Any, ...]] = (one_image,)

    diskimage: Any = key(
        FILLED_TEXT,
        None,
        "Image of the provider's ``diskimages``; either this or ``cloud-image``.",
        read=False,
        default_text="one is required",
    )
    cloud_image: Any = key(
        FILLED_TEXT,
        None,
        "Image of the provider's ``cloud-images``.",
        read=False,
        default_text="one is required",
    )
    console_log: bool = key(
        FLAG, False, "Write the console to the log when the machine does not answer within ``boot-timeout``."
    )
    host_key_checking: bool = key(
        FLAG, True, "false: a node is not contacted before it is given out, and has no host keys."
    )

    def __init__(self, pool: ConfigPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.read_keys(data)
        if "diskimage" in data:
            self.diskimage = self._image(provider.diskimages, data["diskimage"], "diskimage")
        if "cloud-image" in data:
            self.cloud_image = self._image(provider.cloud_images, data["cloud-image"], "cloud-image")

    def _image(self, images: dict[str, Any], name: str, kind: str) -> Any:
        if name not in images:
            raise ConfigError(f"label {self.name}: the provider has no {kind} {name!r}; add it to its {kind}s")
        return images[name]


def known_images(provider: dict[str, Any]) -> dict[str, Any]:
    """Check for the schema of a provider: it has the images that its labels name. Else raises voluptuous.Invalid."""
    import voluptuous as v

    problems = [v.Invalid(text, path=path) for path, text in _unknown_images(provider)]
    if problems:
        raise v.MultipleInvalid(problems)
    return provider


def labels_not_offered(section: dict[str, Any], checks: Iterable[Any]) -> Iterator[tuple[list[Hashable], str]]:
    """Labels that no node can be launched for; see `DeclaredProviderConfig.without_effect`.

    :param section: of a provider.
    :param checks: of a label.
    """
    import voluptuous as v

    images = {image.get("name") for _, image in mappings(section, "diskimages")}
    for pool_index, pool in mappings(section, "pools"):
        for index, label in mappings(pool, "labels"):
            path: list[Hashable] = ["pools", pool_index, "labels", index]
            image = label.get("diskimage")
            try:
                for check in checks:
                    check(label)
            except v.Invalid as problem:
                yield [*path, *problem.path], f"{problem.error_message}; a daemon does not offer the label here"
                continue
            if isinstance(image, str) and image not in images:
                text = f"the provider has no diskimage {image!r}; add it to its diskimages"
                yield [*path, "diskimage"], f"{text}; a daemon does not offer the label here"


def _unknown_images(provider: dict[str, Any]) -> Iterator[tuple[list[Any], str]]:
    """Labels with an image that the provider does not have: path inside the section, and what is wrong."""
    for kind, section in (("diskimage", "diskimages"), ("cloud-image", "cloud-images")):
        names = {image["name"] for image in provider.get(section) or []}
        for pool_index, pool in enumerate(provider.get("pools") or []):
            for index, label in enumerate(pool.get("labels") or []):
                name = label.get(kind)
                if name is not None and name not in names:
                    text = f"the provider has no {kind} {name!r}; add it to its {section}"
                    yield ["pools", pool_index, "labels", index, kind], text
