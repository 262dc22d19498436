# SPDX-License-Identifier: Apache-2.0
"""Images in clouds that ZooKeeper does not know (rule D-3)."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.cmd import direct
from nodepool.cmd.direct import KnownUploads, aliens, known_uploads
from nodepool.config import loader
from nodepool.driver.framework.images import ListedImage
from nodepool.model.image import NO_IMAGES, BuildView, UploadView
from nodepool.zk import images
from tests.support.image_records import build_view, image_view, images_view, upload

KNOWN = KnownUploads({("b1", "0000000001")}, {"ext"})


def image(id: Any = "new", build: str | None = "b9", number: str = "0000000001", provider: str | None = "lab") -> Any:
    metadata = {
        "nodepool_build_id": build,
        "nodepool_upload_id": number,
        "nodepool_provider_name": provider,
    }
    return ListedImage(id, "name", {key: value for key, value in metadata.items() if value is not None})


@pytest.mark.parametrize(
    ("listed", "alien"),
    [
        (image(), True),
        (image(provider=None), True),
        (image(provider="gone"), True),
        (image("ext"), False),
        (image(build="b1"), False),
        (image(build="b1", number="0000000002"), True),
        (image(build=None), False),
        (image(provider="other"), False),
    ],
)
def test_which_images_are_aliens(listed: ListedImage, alien: bool) -> None:
    """Those of a builder; not those of a provider that is asked itself, and not those with a record."""
    assert list(aliens([listed], KNOWN, "lab", {"other"})) == [listed] * alien


def test_uploads_that_are_known() -> None:
    """Also those whose record cannot be read; external ids may be of any type."""
    build = build_view("deb", "b1", [upload("deb", "b1", "lab"), upload("deb", "b1", "odd", external_id=7)])
    broken = BuildView("b2", None, uploads={"lab": (UploadView("0000000003", None),)})
    known = known_uploads(images_view(image_view("deb", build, broken)), "lab")
    assert known == KnownUploads({("b1", "0000000001"), ("b2", "0000000003")}, {"ext", "7"})


class TestCommand:
    """The command with providers of drivers, and a ZooKeeper that is not asked for anything else."""

    @pytest.fixture
    def run(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
        def run(answers: dict[str, list[ListedImage] | Exception], provider: str | None = None) -> int:
            @contextlib.contextmanager
            def started(_zk: object, _config: object, name: str) -> Iterator[object]:
                yield SimpleNamespace(name=name, listImages=lambda: answer(answers[name]))

            def answer(given: list[ListedImage] | Exception) -> list[ListedImage]:
                if isinstance(given, Exception):
                    raise given
                return given

            section = SimpleNamespace(manage_images=True)
            config = SimpleNamespace(providers=dict.fromkeys(answers, section))
            zookeeper = contextlib.nullcontext(SimpleNamespace(client=None))
            monkeypatch.setattr(loader, "load_config", lambda *_: config)
            monkeypatch.setattr(images, "read_images", lambda _: NO_IMAGES)
            monkeypatch.setattr(direct, "connect", lambda _: zookeeper)
            monkeypatch.setattr(direct, "started_provider", started)
            options = argparse.Namespace(
                config="", secure=None, provider=provider, format="csv", sort=None, columns=[], headers=True
            )
            return direct.list_images(options)

        return run

    def test_cloud_that_fails(self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
        """The others are listed all the same; the status says that something is missing."""
        assert run({"lab": RuntimeError("no answer"), "odd": [image(provider="odd")]}) == 1
        assert capsys.readouterr().out.splitlines() == ["provider,name,image_id", "odd,name,new"]

    def test_driver_that_cannot_list(
        self, run: Callable[..., int], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is told; an error only for who asks for that provider."""
        answers = {"lab": NotImplementedError(), "odd": [image(provider="odd")]}
        assert run(answers) == 0
        assert capsys.readouterr().out.splitlines() == ["provider,name,image_id", "odd,name,new"]
        assert caplog.messages == ["the driver of provider lab cannot list images"]
        assert run(answers, "lab") == 1
