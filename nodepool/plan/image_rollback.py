# SPDX-License-Identifier: Apache-2.0
"""Back to an older upload: which one, and what becomes of the newer one?"""

from __future__ import annotations

from dataclasses import dataclass

from nodepool.model import states
from nodepool.model.image import ImageUpload
from nodepool.model.image_view import ImageView


@dataclass(frozen=True)
class Rollback:
    """Store ``to`` with a new time, so that launchers use it, and mark ``current`` as rolled back."""

    to: ImageUpload
    current: ImageUpload


@dataclass(frozen=True)
class NoRollback:
    """Nothing to go back to."""

    reason: str


def choose_rollback(view: ImageView, provider: str) -> Rollback | NoRollback:
    """The ready upload before the current one.

    One that somebody went back from is not preferred again; nor is one whose build is being deleted.
    """
    ready = view.ready_uploads(provider)
    if not ready:
        return NoRollback(f"image {view.name} has no ready upload in {provider}")
    current = ready[0]
    doomed = {build.id for build in view.builds_in(states.DELETING)}
    older = [upload for upload in ready[1:] if not upload.rolled_back and upload.build_id not in doomed]
    if not older:
        return NoRollback(f"image {view.name} has no ready upload in {provider} before {current.build_id}/{current.id}")
    return Rollback(older[0], current)
