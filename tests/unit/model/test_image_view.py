# SPDX-License-Identifier: Apache-2.0
"""nodepool.model.image: what follows from a view of an image."""

from __future__ import annotations

from nodepool.model.image import NO_IMAGES, BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView


def build(build_id: str, state: str, time: float | None, *uploads: ImageUpload) -> BuildView:
    record = ImageBuild("debian", build_id)
    record.state, record.state_time = state, time
    views: dict[str, tuple[UploadView, ...]] = {}
    for upload in uploads:
        views[upload.provider_name] = (*views.get(upload.provider_name, ()), UploadView(upload.key, upload))
    return BuildView(build_id, record, uploads=views)


def upload(build_id: str, number: str, state: str, time: float | None, provider: str = "cloud") -> ImageUpload:
    record = ImageUpload("debian", build_id, provider, number)
    record.state, record.state_time = state, time
    return record


def image(*builds: BuildView) -> ImageView:
    return ImageView("debian", builds={build.id: build for build in builds})


def test_newest_first() -> None:
    view = image(
        build("b1", "ready", 1.0),
        build("b2", "ready", 3.0),
        build("b3", "ready", 2.0),
        build("b4", "failed", 9.0),
        build("b5", "ready", None),
        BuildView("bad", None),
    )
    assert [found.id for found in view.ready_builds()] == ["b2", "b3", "b1", "b5"]
    assert [found.id for found in view.builds_in("failed")] == ["b4"]


def test_current_upload() -> None:
    """The ready one with the greatest state time over all builds (reference/zookeeper 6.2)."""
    view = image(
        build("b1", "ready", 1.0, upload("b1", "1", "ready", 50.0), upload("b1", "2", "ready", 99.0, "other")),
        build("b2", "ready", 2.0, upload("b2", "1", "ready", 40.0), upload("b2", "2", "failed", 60.0)),
    )
    current = view.current_upload("cloud")
    assert current is not None
    assert (current.build_id, current.id) == ("b1", "1")
    assert [found.build_id for found in view.ready_uploads("cloud")] == ["b1", "b2"]
    assert view.current_upload("third") is None
    assert view.builds["b1"].upload_count == 2
    assert len(list(view.builds["b2"].all_uploads())) == 2


def test_bad_uploads() -> None:
    view = BuildView("b1", None, uploads={"cloud": (UploadView("1", None),)})
    assert (view.upload_count, list(view.all_uploads()), view.ready_uploads("cloud")) == (1, [], [])
    assert (view.state, view.time) == (None, 0.0)


def test_images() -> None:
    first = NO_IMAGES.with_image("debian", image())
    assert first.image("debian") == ImageView("debian")
    second = first.with_image("debian", None)
    assert (list(first.images), list(second.images), list(NO_IMAGES.images)) == (["debian"], [], [])
    assert second.image("fedora") == ImageView("fedora")
    assert ImagesView() == NO_IMAGES
