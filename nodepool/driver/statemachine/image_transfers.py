# SPDX-License-Identifier: Apache-2.0
"""Images of a provider on the framework: uploads, deletions and lists, by its adapter (rules U, D-1, D-3)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway
from nodepool.driver.framework.held_time import HeldTime, working_for
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.statemachine import metadata
from nodepool.driver.statemachine.instance import Resource
from nodepool.exceptions import NotFound

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Adapter


class RunningTransfers:
    """Uploads and deletions of images under way; a context around each.

    Those of a provider that was replaced are finished, as its launches are (L-17): an upload may have taken hours by
    then. ``_lock`` guards all; it is not held across calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            over = not self._running
        if over:
            self.stop_now()

    def stop_after(self, stop: Callable[[], None]) -> None:
        """Have something called when none runs any more; at once, if none does. Does not block for them."""
        with self._lock:
            self._stop, over = stop, not self._running
        if over:
            self.stop_now()

    def stop_now(self) -> None:
        """Nobody waits any more for those that run."""
        with self._lock:
            stop, self._stop = self._stop, None
        if stop is not None:
            stop()


class ImageTransfers:
    """Base of a provider. All methods block as long as the cloud does; any thread may call them, several at once."""

    name: str
    adapter: Adapter
    transfers: RunningTransfers

    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_type: str | None = None,
        meta: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        """See `nodepool.driver.interface.Provider.uploadImage`. The name of the provider is added to the metadata."""
        with self.transfers, working_for((HeldTime(),)):
            return gateway.upload_image_to_cloud(
                self.name,
                self.adapter,
                provider_image,
                image_name,
                filename,
                image_format=image_type,
                metadata={**(meta or {}), metadata.PROVIDER_KEY: self.name, **metadata.of_installation()},
                md5=md5,
                sha256=sha256,
            )

    def deleteImage(self, name: str, id: Any) -> None:
        """Delete an image; one that is gone already is no error.

        :param id: what the upload gave, or what `listImages` shows.
        """
        with self.transfers, working_for((HeldTime(),)), contextlib.suppress(NotFound):
            if isinstance(id, Resource):
                gateway.delete_resource(self.name, self.adapter, id)
            else:
                gateway.delete_image_in_cloud(self.name, self.adapter, id)

    def listImages(self) -> list[ListedImage]:
        """Images with metadata of ours. Adapters written for 11.0.0 show them among their resources.

        :raises NotImplementedError: the adapter lists neither.
        """
        try:
            return gateway.list_images_in_cloud(self.name, self.adapter)
        except NotImplementedError:
            # An adapter of the released interface.
            found = gateway.list_resources(self.name, self.adapter)
        ours = [one for one in found if metadata.upload_of(one.metadata, self.name) is not None]
        return [
            ListedImage(resource, metadata=resource.metadata, usable=getattr(resource, "usable", True))
            for resource in ours
        ]
