# SPDX-License-Identifier: Apache-2.0
"""Cases that the simulated world found with builders. Each was a fault of a builder when it was found."""

from __future__ import annotations

from tests.model.image_world import ImageWorld, image_setup
from tests.model.setup import Move
from tests.model.world import replay


def test_lock_that_is_lost_before_the_build_begins() -> None:
    """It was a traceback in the log."""
    replay(
        image_setup(1, sends_after_death=False),
        Move(10, "stall", 36),
        Move(300, "request", 8),
        Move(150, "zombie", 2),
        Move(10, "clock", 35),
        Move(10, "request", 18),
        Move(0, "clock", 45),
        Move(2, "serve_and_cut", 29),
        kind=ImageWorld,
    )


def test_lock_of_a_build_that_has_just_been_removed() -> None:
    """It was made again without data, and all builders took its lock again and again."""
    replay(
        image_setup(3, 996020622, False),
        Move(40, "lost_upload", 13),
        Move(300, "broken_upload", 29),
        Move(2, "corrupted_upload", 14),
        Move(80, "stall", 20),
        Move(10, "zombie", 35),
        kind=ImageWorld,
    )


def test_lock_of_an_upload_that_has_just_been_removed() -> None:
    """The same, of an upload."""
    replay(
        image_setup(3, 963912295),
        Move(2, "long_clock", 44),
        Move(40, "request", 12),
        Move(40, "long_clock", 26),
        Move(40, "zombie", 35),
        Move(40, "crash", 41),
        Move(150, "long_clock", 45),
        Move(80, "request", 45),
        Move(2, "serve_and_cut", 46),
        Move(10, "freeze", 31),
        Move(0, "stop", 13),
        Move(150, "clock", 29),
        Move(80, "crash", 45),
        kind=ImageWorld,
    )


def test_file_that_is_removed_right_before_its_upload() -> None:
    """It was a traceback in the log, and a record that nobody worked on."""
    replay(
        image_setup(1, sends_after_death=False),
        Move(150, "image_removed", 32),
        Move(0, "cut", 30),
        Move(80, "files_deleted", 31),
        Move(0, "long_clock", 5),
        Move(300, "stall", 21),
        Move(2, "unwanted_upload", 20),
        Move(300, "upload_corrupted", 23),
        Move(150, "upload_corrupted", 49),
        Move(40, "cut", 18),
        Move(10, "request", 31),
        Move(10, "files_deleted", 41),
        Move(40, "request", 17),
        kind=ImageWorld,
    )


def test_image_that_goes_from_the_configuration_right_before_its_build() -> None:
    """It was a traceback in the log."""
    replay(
        image_setup(2, 985361961),
        Move(40, "image_removed", 48),
        Move(2, "unwanted_build", 26),
        Move(80, "serve_and_cut", 14),
        Move(300, "unwanted_build", 34),
        Move(0, "broken_upload", 31),
        kind=ImageWorld,
    )


def test_cloud_that_is_down_is_not_asked_by_builders_in_turns_without_a_pause() -> None:
    """R-7: while one had the lock the others forgot that their deletions had just failed."""
    replay(
        image_setup(3, 585066813, False),
        Move(2, "corrupted_upload", 1),
        Move(0, "image_service_down", 32),
        Move(10, "long_clock", 39),
        kind=ImageWorld,
    )
