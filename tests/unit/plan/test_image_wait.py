# SPDX-License-Identifier: Apache-2.0
"""When a command that waits has what it waits for."""

from __future__ import annotations

from nodepool.model.image import BuildView, ImageView
from nodepool.plan.images import BuildWait, End, provider_uploads, uploads_end
from tests.support.image_records import build_view, image_view, upload


def build(id: str, state: str, time: float = 1.0) -> BuildView:
    return build_view("deb", id, state=state, state_time=time)


def image(*builds: BuildView) -> ImageView:
    return image_view("deb", *builds)


class TestBuildWait:
    def test_first_build_that_ends_after_the_request(self) -> None:
        old = build("old", "ready")
        wait = BuildWait(image(old))
        assert wait.look(image(old)) is None
        assert wait.look(image(old, build("new", "building"))) is None
        assert [one.id for one in wait.running(image(old, build("new", "building")))] == ["new"]
        assert wait.look(image(old, build("new", "ready"))) == End(True, "Build deb-new is ready")

    def test_build_that_was_running_counts(self) -> None:
        """reference/zookeeper 6.3: the request is being served while a build runs."""
        wait = BuildWait(image(build("b", "building")))
        assert wait.look(image(build("b", "ready"))) == End(True, "Build deb-b is ready")

    def test_failure(self) -> None:
        wait = BuildWait(image())
        assert wait.look(image(build("b", "failed"))) == End(False, "Build deb-b has failed; its log is on host")

    def test_success_beside_a_failure(self) -> None:
        wait = BuildWait(image())
        found = wait.look(image(build("a", "failed", 2.0), build("b", "ready", 1.0)))
        assert found == End(True, "Build deb-b is ready")

    def test_record_that_vanishes(self) -> None:
        """A failed build may be gone before anybody has seen its state."""
        wait = BuildWait(image())
        assert wait.look(image(build("b", "building"))) is None
        assert wait.look(image()) == End(False, "Build deb-b was not finished: its record is gone")

    def test_build_that_is_deleted(self) -> None:
        found = BuildWait(image()).look(image(build("b", "deleting")))
        assert found == End(False, "Build deb-b is being deleted")

    def test_record_that_cannot_be_read_decides_nothing(self) -> None:
        assert BuildWait(image()).look(image(BuildView("b", None))) is None


class TestUploads:
    def test_newest_ready_build_counts(self) -> None:
        old = build_view("deb", "old", [upload("deb", "old", "lab")], state_time=1.0)
        new = build_view("deb", "new", [upload("deb", "new", "lab", state="uploading")], state_time=2.0)
        assert uploads_end(image(old, new), ["lab"]) is None
        assert uploads_end(image(old), ["lab"]) == End(True, "Build deb-old is ready in lab")

    def test_every_provider_counts(self) -> None:
        one = build_view("deb", "b", [upload("deb", "b", "lab"), upload("deb", "b", "odd", state="failed")])
        assert uploads_end(image(one), ["lab", "odd"]) is None
        assert uploads_end(image(one), ["lab"]) is not None

    def test_image_without_a_build(self) -> None:
        assert uploads_end(image(), ["lab"]) is None
        assert [one.upload for one in provider_uploads(image(), ["lab"])] == [None]

    def test_state_of_each_provider(self) -> None:
        records = [
            upload("deb", "b", "lab", "0000000001", state="failed"),
            upload("deb", "b", "lab", "0000000002", state="uploading"),
            upload("deb", "b", "odd", "0000000001"),
        ]
        lab, odd, none = provider_uploads(image(build_view("deb", "b", records)), ["lab", "odd", "none"])
        assert (lab.upload, lab.failures, lab.ready) == (records[1], 1, False)
        assert (odd.upload, odd.failures, odd.ready) == (records[2], 0, True)
        assert (none.upload, none.ready) == (None, False)
