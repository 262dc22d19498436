# SPDX-License-Identifier: Apache-2.0
"""Images of a provider on the framework: uploads, deletions and lists, by its adapter (rules U, D-1, D-3)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver import gateway
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.framework.images import ListedImage
from nodepool.driver.framework.places import BrokenLabels
from nodepool.driver.framework.rate import HeldTime, working_for
from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.instance import Resource
from nodepool.driver.statemachine.inventory import Known, NotKnown, Patience
from nodepool.exceptions import NotFound
from nodepool.model.reasons import ReasonCode

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Adapter, Log
    from nodepool.model.status import LabelStatus


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
                metadata={**(meta or {}), instance.PROVIDER_KEY: self.name, **instance.of_installation()},
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
        ours = [one for one in found if instance.upload_of(one.metadata, self.name) is not None]
        return [
            ListedImage(resource, metadata=resource.metadata, usable=getattr(resource, "usable", True))
            for resource in ours
        ]


# `LabelImages`: which labels have their image, in ZooKeeper or in the cloud?

#: Seconds for which the cloud is not asked again.
AGE_SECONDS: Final = 5.0


class LabelImages:
    """Any thread. ``_lock`` guards the table of what is known.

    :param provider: its name. ``pools``: of its configuration.
    :param uploaded: is there a ready upload of a diskimage? Blocks for ZooKeeper only where there is no cache.
    :param ask: asks the cloud whether the image of a label is there; may block.
    """

    def __init__(
        self,
        provider: str,
        pools: Mapping[str, Any],
        *,
        uploaded: Callable[[str], bool],
        ask: Callable[[LabelSettings], bool],
        executor: Executor,
        patience: Patience,
        log: Log,
    ) -> None:
        self._provider = provider
        self._pools = pools
        self._uploaded = uploaded
        self._ask = ask
        self._executor = executor
        self._patience = patience
        self._missing = BrokenLabels(ReasonCode.IMAGE_MISSING)
        self._repeats = Repeats()
        self._log = log
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Known[bool]] = {}

    def ready(self, name: Any) -> bool:
        """Is the image of a label there? Name or label object; does not wait for the cloud, but for a first answer."""
        labels = [name] if hasattr(name, "name") else self._labels(name)
        return any(self._ready(label) for label in labels)

    def missing(self) -> dict[str, LabelStatus]:
        """Labels that were looked at and whose images are still not there."""
        return {label: cause for label, cause in self._missing.causes().items() if not self.ready(label)}

    def no_upload(self, label: LabelSettings) -> str:
        """The message about a label whose diskimage has no ready upload."""
        return f"provider {self._provider}, label {label.name}: {_no_ready_upload(label)}"

    def _labels(self, name: str) -> list[LabelSettings]:
        return [pool.labels[name] for pool in self._pools.values() if name in pool.labels]

    def _ready(self, label: LabelSettings) -> bool:
        diskimage = instance.diskimage_of(label)
        if diskimage is not None:
            uploaded = self._uploaded(diskimage.name)
            if not uploaded and self._repeats.worth_saying(label.name):
                self._log.warning("%s", self.no_upload(label))
            return self._noted(label, uploaded, _no_ready_upload)
        try:
            return self._noted(label, self._known_of(label).get(), _no_cloud_image)
        except NotKnown as reason:
            # Nobody knows that it is not there, and a request must not be declined for that.
            self._log.debug("Label %s: %s", label.name, reason)
            return True

    def _known_of(self, label: LabelSettings) -> Known[bool]:
        key = (label.pool.name, label.name)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                ask, executor, patience = self._ask, self._executor, self._patience
                known = self._known[key] = Known(lambda: ask(label), AGE_SECONDS, executor, patience=patience)
            return known

    def _noted(self, label: LabelSettings, there: bool, text: Callable[[LabelSettings], str]) -> bool:
        if there:
            self._missing.discard(label.name)
        else:
            self._missing.add(label.name, text(label))
        return there


def _no_ready_upload(label: LabelSettings) -> str:
    image = getattr(instance.diskimage_of(label), "name", "")
    return f"there is no ready upload of image {image}; see nodepool image-list and nodepool dib-image-list"


def _no_cloud_image(label: LabelSettings) -> str:
    image = getattr(label.cloud_image, "name", "")
    return f"the cloud has no usable image for cloud-image {image!r}; correct cloud-image, or upload the image"
