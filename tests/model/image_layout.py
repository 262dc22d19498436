# SPDX-License-Identifier: Apache-2.0
"""Images and who uses them, as a configuration of the simulated world."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodepool.config.objects import Config, DiskImage
from nodepool.driver.fake import FakeDriver

#: Provider -> format of its images.
FORMATS: Final = {"one": "qcow2", "two": "raw"}
IMAGES: Final = ("debian", "noble")


@dataclass(frozen=True)
class ImageLayout:
    """One content of the configuration file of builders.

    :param images: those of ``diskimages``. :param unused: provider and image that it does not use.
    """

    images: tuple[str, ...] = IMAGES
    unused: tuple[tuple[str, str], ...] = ()
    rebuild_age: int = 86400

    def uses(self, provider: str, image: str) -> bool:
        return image in self.images and (provider, image) not in self.unused

    def changed(self, number: int) -> ImageLayout:
        """Another configuration: an image or its use in a provider is gone."""
        image = IMAGES[number % len(IMAGES)]
        if number // 2 % 2:
            return dataclasses.replace(self, unused=((list(FORMATS)[number // 4 % 2], image),))
        return dataclasses.replace(self, images=tuple(name for name in self.images if name != image))

    def config(self, world_name: str, directory: Path) -> Config:
        """The configuration as a builder loads it.

        :param directory: of that builder.
        """
        config = Config()
        config.images_dir, config.build_log_dir = str(directory / "images"), str(directory / "logs")
        for name in self.images:
            image = config.diskimages[name] = DiskImage(name)
            image.rebuild_age = self.rebuild_age
        for provider, image_format in FORMATS.items():
            section = {
                "name": provider,
                "driver": "fake",
                "cloud": f"{world_name}-{provider}",
                "image-type": image_format,
                "diskimages": [{"name": name} for name in self.images if self.uses(provider, name)],
                "pools": [],
            }
            made = FakeDriver().getProviderConfig(section)
            made.getSchema()(section)
            made.load(config)
            config.providers[provider] = made
        return config
