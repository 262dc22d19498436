# SPDX-License-Identifier: Apache-2.0
"""`LabelImages`: which labels have their image, in ZooKeeper or in the cloud?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.broken_labels import BrokenLabels
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.statemachine import node_fields
from nodepool.driver.statemachine.known import Known, NotKnown, Patience
from nodepool.model.reasons import ReasonCode

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.pool_status import LabelStatus

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
        diskimage = node_fields.diskimage_of(label)
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
    image = getattr(node_fields.diskimage_of(label), "name", "")
    return f"there is no ready upload of image {image}; see nodepool image-list and nodepool dib-image-list"


def _no_cloud_image(label: LabelSettings) -> str:
    image = getattr(label.cloud_image, "name", "")
    return f"the cloud has no usable image for cloud-image {image!r}; correct cloud-image, or upload the image"
