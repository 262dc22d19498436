# SPDX-License-Identifier: Apache-2.0
"""Spans of images: each build is a trace, and its uploads belong to it."""

from __future__ import annotations

from typing import Final

from nodepool.clock import wall_time
from nodepool.tracing import recorder
from nodepool.tracing.span import TRACE_ID_BITS, Trace, derived_id

BUILD: Final = "nodepool.build"
UPLOAD: Final = "nodepool.upload"


def _trace(image: str, build: str) -> Trace:
    return Trace(derived_id(TRACE_ID_BITS, "build", image, build))


def build_ended(image: str, build: str, seconds: float, error: str) -> None:
    """A build has ended just now. Does not block.

    :param build: id of the build.
    :param error: why it failed; empty = it did not.
    """
    if recorder.enabled():
        now = wall_time()
        attributes = {"nodepool.image": image, "nodepool.build": build}
        recorder.record(
            _trace(image, build), BUILD, (image, build), now - seconds, now, error=error, attributes=attributes
        )


def upload_ended(image: str, build: str, provider: str, upload: str, seconds: float, outcome: str, error: str) -> None:
    """An upload has ended just now. Does not block.

    :param upload: number of the upload.
    :param outcome: in a word or two.
    :param error: why it failed; empty = it did not.
    """
    if not recorder.enabled():
        return
    trace, now = _trace(image, build), wall_time()
    recorder.record(
        trace,
        UPLOAD,
        (provider, upload),
        now - seconds,
        now,
        parent=recorder.span_id_of(trace, BUILD, image, build),
        error=error,
        attributes={
            "nodepool.image": image,
            "nodepool.build": build,
            "nodepool.provider": provider,
            "nodepool.upload": upload,
            "nodepool.outcome": outcome,
        },
    )
