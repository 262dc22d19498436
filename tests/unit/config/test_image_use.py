# SPDX-License-Identifier: Apache-2.0
"""nodepool.config.sections: from configuration to what is wanted of images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nodepool.config.objects import Config, DiskImage
from nodepool.config.sections import wanted_images
from nodepool.plan.images import WantedUpload


def configuration(**providers: Any) -> Config:
    config = Config()
    for name in ("base", "debian"):
        config.diskimages[name] = DiskImage(name)
    config.diskimages["base"].abstract = True
    debian = config.diskimages["debian"]
    debian.image_types = {"qcow2", "raw"}
    debian.keep_formats = ["raw"]
    debian.env_vars = {"A": "1"}
    config.providers = providers
    return config


def provider(manages: bool, image_type: str | None, **diskimages: bool) -> Any:
    uses = {name: SimpleNamespace(name=name, pause=pause) for name, pause in diskimages.items()}
    return SimpleNamespace(manage_images=manages, image_type=image_type, diskimages=uses)


def test_wanted_images() -> None:
    """B-2: the formats of an image are those of all providers, too."""
    wanted = wanted_images(
        configuration(
            cloud=provider(True, "qcow2", debian=False),
            paused=provider(True, "raw", debian=True),
            unused=provider(True, "raw"),
            static=SimpleNamespace(manage_images=False),
            odd=provider(True, None, debian=False),
        )
    )
    assert list(wanted.images) == ["debian"]
    debian = wanted.images["debian"]
    assert (sorted(debian.formats), sorted(debian.keep_formats)) == (["qcow2", "raw"], ["raw"])
    assert (debian.rebuild_age_seconds, debian.paused, debian.delete_after_upload) == (86400, False, False)
    assert wanted.providers == {
        "cloud": {"debian": WantedUpload("qcow2")},
        "paused": {"debian": WantedUpload("raw", paused=True)},
        "unused": {},
    }


def test_settings() -> None:
    """B-13: what a build makes of them, and nothing else, is worth another attempt."""
    before = wanted_images(configuration()).images["debian"]
    config = configuration()
    config.diskimages["debian"].rebuild_age = 5
    assert wanted_images(config).images["debian"].settings == before.settings
    config.diskimages["debian"].env_vars = {"A": "2"}
    after = wanted_images(config).images["debian"]
    assert after.settings != before.settings
    assert hash(after.settings) != hash(before.settings)
