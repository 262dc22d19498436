# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.caches: from znodes to views."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.zk import caches, paths
from nodepool.zk.caches import ImageTree

BUILD = caches.build("debian", "b1")
UPLOAD = caches.upload("debian", "b1", "cloud", "0000000001")


def stat(version: int = 0, ctime: int = 0) -> Any:
    return SimpleNamespace(version=version, mzxid=7, czxid=5, ctime=ctime, mtime=2500)


@pytest.fixture
def tree() -> ImageTree:
    """One ready build with one ready upload."""
    tree = ImageTree()
    for path in (BUILD, UPLOAD):
        tree.add(path)
        tree.load(path, paths.encode({"state": "ready", "state_time": 5.0}), stat(3))
    return tree


def test_view(tree: ImageTree) -> None:
    view = tree.view("debian")
    assert view is not None
    build = view.builds["b1"]
    assert build.record is not None
    assert (build.record.state, build.record.version, build.record.image_name) == ("ready", 3, "debian")
    (upload,) = build.uploads["cloud"]
    assert upload.record is not None
    assert (upload.record.id, upload.record.build_id, upload.record.provider_name) == ("0000000001", "b1", "cloud")
    assert (view.paused, view.build_requested, view.build_locked) == (False, None, False)
    assert (build.locked, upload.locked, build.uploading) == (False, False, frozenset())
    assert view.current_upload("cloud") is upload.record
    assert view.current_upload("other") is None
    assert tree.view("fedora") is None


def test_flags(tree: ImageTree) -> None:
    tree.add(caches.pause("debian"))
    tree.add(caches.build_request("debian"))
    tree.load(caches.build_request("debian"), b"", stat(ctime=1500))
    view = tree.view("debian")
    assert view is not None
    assert (view.paused, view.build_requested, view.request_zxid) == (True, 1.5, 7)
    assert (view.builds["b1"].created_zxid, view.builds["b1"].changed) == (5, 2.5)
    tree.remove(caches.pause("debian"))
    tree.remove(caches.build_request("debian"))
    after = tree.view("debian")
    assert after is not None
    assert (after.paused, after.build_requested) == (False, None)
    assert view.paused, "a view does not change"


def test_locks(tree: ImageTree) -> None:
    """A directory of a lock is no lock; a contender makes it one."""
    directories = [
        caches.build_lock("debian"),
        caches.build_id_lock("debian", "b1"),
        caches.upload_lock("debian", "b1", "cloud"),
        caches.upload_id_lock("debian", "b1", "cloud", "0000000001"),
    ]
    for directory in directories:
        tree.add(directory)
    for held in (False, True, False):
        view = tree.view("debian")
        assert view is not None
        build = view.builds["b1"]
        assert [view.build_locked, build.locked, "cloud" in build.uploading, build.uploads["cloud"][0].locked] == [
            held
        ] * 4
        assert list(view.builds) == ["b1"]
        assert len(build.uploads["cloud"]) == 1
        for directory in directories:
            (tree.remove if held else tree.add)(f"{directory}/a__lock__0000000000")


def test_bad_record_harms_no_other(tree: ImageTree, caplog: pytest.LogCaptureFixture) -> None:
    """It is there, but says nothing; it is logged once."""
    bad = caches.build("debian", "b2")
    tree.add(bad)
    for _ in range(2):
        tree.load(bad, b"no JSON", stat())
    view = tree.view("debian")
    assert view is not None
    assert view.builds["b2"].record is None
    assert view.builds["b2"].state is None
    assert [build.id for build in view.ready_builds()] == ["b1"]
    assert caplog.text.count("b2") == 1
    tree.load(bad, paths.encode({"state": "ready", "state_time": 9.0}), stat())
    view = tree.view("debian")
    assert view is not None
    assert [build.id for build in view.ready_builds()] == ["b2", "b1"]


def test_znode_without_data_is_not_worth_a_line(tree: ImageTree, caplog: pytest.LogCaptureFixture) -> None:
    tree.add(caches.build("debian", "b2"))
    tree.load(caches.build("debian", "b2"), b"", stat())
    assert caplog.text == ""


def test_set_children(tree: ImageTree) -> None:
    """Who is not in the listing is gone with all below; who is new is there, and who stays keeps what is known."""
    tree.set_children(caches.builds("debian"), ["b1", "b3"])
    view = tree.view("debian")
    assert view is not None
    assert view.builds["b1"].state == "ready"
    assert view.builds["b3"].record is None
    tree.set_children(caches.builds("debian"), [])
    view = tree.view("debian")
    assert view is not None
    assert view.builds == {}
    tree.set_children(caches.builds("gone"), ["b1"])
    tree.load(BUILD, b"{}", stat())
    tree.remove(UPLOAD)
    assert tree.image_names() == ["debian"]
    tree.remove(caches.IMAGES)
    assert tree.image_names() == []
