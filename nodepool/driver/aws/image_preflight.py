# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about uploads of images: could they begin? Only reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.aws.image_config import EBS_DIRECT, IMAGE
from nodepool.driver.framework.check_result import CheckResult, failure
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsProviderConfig
    from nodepool.driver.aws.image_config import AwsDiskImage
    from nodepool.driver.aws.images import AwsImages


class ImagePreflight:
    """Of one provider; for one use."""

    def __init__(self, config: AwsProviderConfig, images: AwsImages) -> None:
        self._config = config
        self._images = images
        #: Why imports cannot be asked for, by method; "" = they can.
        self._imports: dict[str, str] = {}

    def results(self) -> Iterator[CheckResult]:
        """A line for each image that is uploaded. Blocks for some calls to AWS."""
        for image in self._config.diskimages.values():
            if not image.pause:
                yield self._result(image)

    def _result(self, image: AwsDiskImage) -> CheckResult:
        subject = f"diskimage {image.name}"
        problem = image.format_problem(self._config.image_type)
        if problem is not None:
            return CheckResult(subject, False, problem, "change image-format, or import-method of the diskimage")
        if image.import_method == EBS_DIRECT:
            return CheckResult(subject, True, "uploads by ebs-direct need no bucket")
        method = image.import_method
        if method not in self._imports:
            self._imports[method] = self._without_import(method)
        if why := self._imports[method]:
            return failure(subject, why)
        return CheckResult(subject, True, f"bucket {self._config.bucket_name} and imports can be listed")

    def _without_import(self, method: str) -> str:
        """Why images cannot be imported, as far as it can be known without one."""
        store = self._images.store
        if store is None:
            return "images are imported from S3; add object-storage.bucket-name to the provider"
        calls = self._images.calls
        try:
            next(iter(store.keys("nodepool/")), None)
            (calls.image_imports if method == IMAGE else calls.snapshot_imports).tasks()
        except LaunchError as error:
            return str(error).removeprefix(f"Provider {self._config.name}: ")
        return ""
