# SPDX-License-Identifier: Apache-2.0
"""`ImageLeaks`: uploaded images as lists show them, and what uploads can leave: snapshots, imports, objects (AW-20).

Only what carries our tags, or has a key of ours, is asked for. Results of imports have none at first: they are found by
their task, and get its tags, so that nothing of others is ever looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from nodepool.driver.aws.discard import discard_image, discard_import, discard_snapshot
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_spec import metadata_of_key, provider_prefix
from nodepool.driver.aws.image_types import COMPLETED, FAILED_TASKS, AwsSnapshot, ImportTask
from nodepool.driver.aws.import_upload import IMAGE_KEY
from nodepool.driver.aws.resources import AwsKind, AwsResource, AwsResources
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.framework.parts_upload import PartsUpload
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS
from nodepool.driver.statemachine.metadata import PROVIDER_KEY

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsProviderConfig
    from nodepool.driver.aws.images import AwsImages
    from nodepool.driver.aws.types import AwsImage

log = logging.getLogger("nodepool.driver.aws.images")

AMI: Final = "ami"
SNAPSHOT: Final = "snapshot"
IMPORT: Final = "import"
OBJECT: Final = "object"
PARTS: Final = "part"
#: Between two looks of a provider to which no images are uploaded now.
IDLE_SECONDS: Final = 600.0
#: Between id and key of an upload in parts.
_BETWEEN: Final = " "

Found = Callable[[], Iterable[AwsResource]]


class ImageLeaks:
    """Of one provider. All methods block; any thread may call them."""

    def __init__(self, config: AwsProviderConfig, ec2: Ec2, images: AwsImages) -> None:
        self._provider = config.name
        self._idle_seconds = 0.0 if config.diskimages else IDLE_SECONDS
        self._ec2 = ec2
        self._calls = images.calls
        self._store = images.store
        self._tags = {PROVIDER_KEY: config.name}
        self._images: Fact[list[AwsImage]] = Fact(lambda: self._calls.images(self._tags))
        self._snapshots: Fact[list[AwsSnapshot]] = Fact(lambda: self._calls.snapshots(self._tags))
        #: Results of imports that are gone, though their tasks are still listed.
        self._gone: set[str] = set()
        #: For the builder, which must not take an image for gone because it cannot be listed.
        self._listing = AwsResources(config.name, self.kinds(for_builder=True))

    def kinds(self, for_builder: bool = False) -> Iterator[AwsKind]:
        """Rows for the table of resources."""

        def row(name: str, found: Found, delete: Callable[[str], None], vital: bool = False) -> AwsKind:
            idle = 0.0 if for_builder else self._idle_seconds
            return AwsKind(name, found, idle, vital and for_builder, delete=delete)

        if self._store is not None:
            # First, because it gives the results of imports their tags.
            yield row(IMPORT, self._found_imports, self._end_import)
        yield row(AMI, self._found_images, lambda image_id: discard_image(self._ec2, self._calls, image_id), True)
        yield row(SNAPSHOT, self._found_snapshots, lambda found: discard_snapshot(self._calls, found), True)
        if self._store is not None:
            yield row(OBJECT, self._found_objects, self._store.delete)
            yield row(PARTS, self._found_parts, self._end_parts)

    def listed(self) -> Iterator[ListedImage]:
        """AMIs with our tags, and what uploads have left or not completed yet (D-1, R-4)."""
        for found in self._listing.all():
            if found.type == AMI:
                yield ListedImage(found.id, found.name, found.metadata)
            else:
                yield ListedImage(found, found.name, found.metadata, usable=False)

    # -- lists --

    def _found_images(self) -> Iterator[AwsResource]:
        for image in self._images.get_new():
            yield AwsResource(image.metadata, AMI, image.id, image.name)

    def _found_snapshots(self) -> Iterator[AwsResource]:
        """Those that no AMI of ours is made of: the others go with it."""
        images = self._images.get(SWEEP_LIST_SECONDS)
        used = {volume.get("SnapshotId") for image in images for _, volume in image.devices}
        for snapshot in self._snapshots.get_new():
            if snapshot.id not in used:
                yield AwsResource(snapshot.metadata, SNAPSHOT, snapshot.id, usable=False)

    def _found_imports(self) -> Iterator[AwsResource]:
        """Those that run. Results of the others get the tags of their task, unless they have them."""
        claimed: set[str] | None = None
        for task in (*self._calls.snapshot_imports.tasks(), *self._calls.image_imports.tasks()):
            if task.metadata.get(PROVIDER_KEY) != self._provider or task.status in FAILED_TASKS:
                continue
            if task.status != COMPLETED:
                yield AwsResource(task.metadata, IMPORT, task.id, usable=False)
            elif IMAGE_KEY not in task.metadata and not self._gone.issuperset(task.result_ids):
                if claimed is None:
                    claimed = {found.id for found in self._images.get_new()}
                    claimed |= {found.id for found in self._snapshots.get_new()}
                self._claim(task, claimed)

    def _claim(self, task: ImportTask, claimed: set[str]) -> None:
        for found in task.result_ids:
            if found in claimed or found in self._gone:
                continue
            try:
                self._ec2.tag_now([found], task.metadata)
            except AwsNotFound:
                self._gone.add(found)
                continue
            log.info("Provider %s: %s is the result of import %s, and has its tags now", self._provider, found, task.id)

    def _found_objects(self) -> Iterator[AwsResource]:
        assert self._store is not None
        for key in self._store.keys(provider_prefix(self._provider)):
            yield AwsResource(metadata_of_key(key), OBJECT, key, usable=False)

    def _found_parts(self) -> Iterator[AwsResource]:
        assert self._store is not None
        for found in self._store.open_uploads(provider_prefix(self._provider)):
            name = f"{found.upload_id}{_BETWEEN}{found.key}"
            yield AwsResource(metadata_of_key(found.key), PARTS, name, usable=False)

    # -- deletions --

    def _end_import(self, task_id: str) -> None:
        kind = self._calls.image_imports if task_id.startswith("import-ami") else self._calls.snapshot_imports
        discard_import(self._ec2, self._calls, kind, task_id)

    def _end_parts(self, name: str) -> None:
        assert self._store is not None
        upload_id, _, key = name.partition(_BETWEEN)
        self._store.abort(PartsUpload(key, upload_id))
