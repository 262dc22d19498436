# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_cleanup: images in clouds that have no record."""

from __future__ import annotations

import dataclasses

import pytest

from nodepool.builder import image_cleanup
from nodepool.driver.framework.uploads import ListedImage
from nodepool.metrics.catalog import UNKNOWN_IMAGES
from nodepool.model.image import ImageBuild
from tests.support.image_site import ImageSite, MakeSite
from tests.support.wait import present, wait_for


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_cleanup, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(image_cleanup, "LOOK_AGAIN_SECONDS", 0.0)


def looked(site: ImageSite, times: int = 1) -> None:
    for _ in range(times):
        before = site.cloud().calls["list"]
        site.clean()
        wait_for("the cloud was asked", lambda before=before: site.cloud().calls["list"] > before)  # type: ignore[misc]
        wait_for("the look has ended", lambda: not any(one.running for one in site.cleanup.unknown.looks.values()))


def lost(site: ImageSite) -> str:
    """Of an image that was uploaded, records and all else are gone."""
    build = ImageBuild("debian", "9" * 32)
    return site.put_image(build, "0000000001", name="lost").id


def test_only_told(site: ImageSite, caplog: pytest.LogCaptureFixture) -> None:
    """D-3: once, and as a number; records may be imported again."""
    image, good = lost(site), site.upload(site.build())
    site.cloud().create("somebody's", "qcow2", {})
    looked(site, 4)
    assert {image, good.external_id} <= {found.id for found in site.cloud().images()}
    assert len(site.cloud().images()) == 3
    assert caplog.text.count(f"image {image} (lost) is marked as ours and has no record") == 1
    assert site.registry.snapshot()[UNKNOWN_IMAGES.series("cloud")] == 1


def test_deleted(make_site: MakeSite) -> None:
    """D-3: when two looks have seen it so, and the provider says so."""
    site = make_site(section={"clean-leaked-images": True})
    lost(site)
    good = site.upload(site.build())
    other = site.cloud().create("somebody's", "qcow2", {})
    looked(site)
    assert len(site.cloud().images()) == 3
    looked(site)
    assert {image.id for image in site.cloud().images()} == {good.external_id, other.id}
    looked(site)
    assert site.registry.snapshot()[UNKNOWN_IMAGES.series("cloud")] == 0


def test_what_is_no_image(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-3: what an upload has left, and nobody can use, goes when two looks have seen it so."""
    left = lost(site)
    good = site.upload(site.build())
    provider = present(site.get("cloud"))
    whole = provider.listImages

    def listed() -> list[ListedImage]:
        return [dataclasses.replace(image, usable=image.id != left) for image in whole()]

    monkeypatch.setattr(provider, "listImages", listed)
    looked(site)
    assert len(site.cloud().images()) == 2
    looked(site)
    assert [image.id for image in site.cloud().images()] == [good.external_id]


def test_cloud_that_does_not_answer(site: ImageSite, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and asked again later."""
    site.cloud().set(images_down=True)
    looked(site, 2)
    assert "Provider cloud: images could not be looked for" in caplog.text
    site.cloud().set(images_down=False)
    lost(site)
    looked(site)
    assert site.registry.snapshot()[UNKNOWN_IMAGES.series("cloud")] == 1


def test_pauses(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clouds are asked seldom: soon again only when something new was seen."""
    monkeypatch.setattr(image_cleanup, "LOOK_SECONDS", 6000.0)
    monkeypatch.setattr(image_cleanup, "LOOK_AGAIN_SECONDS", 3000.0)
    for seconds, prepare in ((6000, lambda: None), (3000, lambda: lost(site))):
        prepare()
        site.cleanup = site.make_cleanup()
        looked(site)
        assert seconds - 1000 < present(site.cleanup.run_once()) <= seconds
