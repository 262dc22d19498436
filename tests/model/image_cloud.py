# SPDX-License-Identifier: Apache-2.0
"""Image services of the simulated world: others may do something before and after each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, cast

from nodepool.driver.fake import FakeDriver, FakeProvider
from nodepool.driver.fake.cloud import FakeCloud, FakeImage
from simulators.faulty_images import FaultyImages

if TYPE_CHECKING:
    from tests.model.world import World
#: How long an upload takes.
UPLOAD_SECONDS: Final = 1.0


class SteppedImages(FaultyImages):
    """:param name: of the cloud."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name)
        self._world = world

    def pause(self) -> None:
        if self._world.baton.current is not None:
            self._world.baton.wait(lambda: True)

    def create(self, name: str, image_format: str | None, metadata: Mapping[str, str]) -> FakeImage:
        self.pause()
        try:
            return super().create(name, image_format, metadata)
        finally:
            self.pause()

    def upload(self, image_id: str, chunks: Iterable[bytes]) -> FakeImage:
        # Builders whose configurations differ for a while must not go round in circles without time going on.
        self._world.baton.wait(lambda: False, self._world.now + UPLOAD_SECONDS)
        try:
            return super().upload(image_id, chunks)
        finally:
            self.pause()

    def images(self) -> list[FakeImage]:
        self.pause()
        found = super().images()
        self.pause()
        return found

    def delete(self, image_id: str) -> None:
        self.pause()
        super().delete(image_id)
        self.pause()

    def all(self) -> list[FakeImage]:
        """Whatever is there, for those who check."""
        return list(self._images.values())


class NoScheduler:
    """In place of `nodepool.driver.framework.rate.Scheduler`: builders launch nothing."""

    def __init__(self, name: str, executor: Executor, on_end: Callable[[], None]) -> None:
        self._on_end: Callable[[], None] | None = on_end

    def drain(self) -> None:
        end, self._on_end = self._on_end, None
        if end is not None:
            end()

    def abandon(self) -> None:
        self.drain()

    def join(self) -> None:
        return


class SteppedImageDriver(FakeDriver):
    """The fake driver with `SteppedImages`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def getProvider(self, provider_config: Any) -> FakeProvider:
        made = cast("FakeProvider", super().getProvider(provider_config))
        images_of(self._world, provider_config.cloud)
        return made


def images_of(world: World, cloud_name: str) -> SteppedImages:
    """The image service of a cloud, made when nobody has asked for it."""
    cloud = FakeCloud.get(cloud_name)
    if not isinstance(cloud.images, SteppedImages):
        cloud.images = SteppedImages(world, cloud_name)
    return cloud.images
