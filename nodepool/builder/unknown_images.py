# SPDX-License-Identifier: Apache-2.0
"""Images in clouds that are marked as ours and have no record (rule D-3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.builder.driver_errors import tell_error
from nodepool.builder.provider_threads import ProviderThreads
from nodepool.builder.upload_run import ProviderTable
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.driver.statemachine import metadata
from nodepool.guard import settle
from nodepool.metrics import leaks
from nodepool.metrics.catalog import UNKNOWN_IMAGES
from nodepool.metrics.registry import Registry
from nodepool.plan.seen_twice import SeenTwice
from nodepool.zk.image_store import ImageStore

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider

#: So often each cloud is asked for its images.
LOOK_SECONDS: Final = 600.0
#: The second look comes so soon after one that shows something new.
LOOK_AGAIN_SECONDS: Final = 10.0


class _LooksAt:
    """Of one provider."""

    def __init__(self) -> None:
        self.seen: SeenTwice[str] = SeenTwice()
        self.told: set[str] = set()
        #: Monotonic time of the next look.
        self.due = 0.0
        self.running = False


class UnknownImages:
    """Any thread; nothing blocks. ``_lock`` guards the table; one look of a provider runs at a time.

    :param on_end: called when a look has ended, in its thread; must not block.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        store: ImageStore,
        providers: ProviderTable,
        threads: ProviderThreads,
        registry: Registry,
        log: logging.Logger,
        on_end: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._providers = providers
        self._threads = threads
        self._registry = registry
        self.log = log
        self._on_end = on_end
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[str, _LooksAt] = {}

    @property
    def running(self) -> int:
        """Looks that run now."""
        with self._lock:
            return sum(looks.running for looks in self._looks.values())

    def begin(self, names: Iterable[str]) -> float | None:
        """Look at the providers whose time it is, in the background.

        :param names: of all providers that images are uploaded to.
        :return: seconds until the next one is due; None = there is no provider.
        """
        waits = []
        for name in names:
            provider, now = self._providers.get(name), self._clock()
            if provider is None:
                continue
            with self._lock:
                looks = self._looks.setdefault(name, _LooksAt())
                if looks.running:
                    continue
                waits.append(max(0.0, looks.due - now))
                if looks.due > now:
                    continue
                looks.running = self._threads.submit(name, lambda it=looks, of=provider: self._look(it, of))  # type: ignore[misc]
        return min(waits, default=None)

    def _look(self, looks: _LooksAt, provider: Provider) -> None:
        ended: Future[None] = Future()
        settle([ended], lambda: self._look_once(looks, provider))
        error = ended.exception()
        # NotImplementedError is how a driver says that it cannot list images: no trouble.
        if error is not None and not isinstance(error, NotImplementedError) and not self._threads.closed:
            tell_error(self.log, error, "Provider %s: images could not be looked for", provider.name)
        again = LOOK_AGAIN_SECONDS if error is None and looks.seen.new else LOOK_SECONDS
        with self._lock:
            looks.due = self._clock() + again
            looks.running = False
        self._on_end()

    def _look_once(self, looks: _LooksAt, provider: Provider) -> None:
        # First the cloud, then ZooKeeper: a record is there before its image.
        ours = {found.shown_id: found for found in gateway.list_images(provider) if _upload(found, provider)}
        known = self._store.upload_ids(provider.name)
        unknown = {shown for shown, found in ours.items() if _upload(found, provider) not in known}
        self._registry.set(UNKNOWN_IMAGES.series(provider.name), len(unknown))
        certain = looks.seen.look(unknown)
        section: Any = provider.provider
        for shown in sorted(certain):
            if getattr(section, "clean_leaked_images", False) is True or not ours[shown].usable:
                self.log.warning("Provider %s: deleting image %s, which has no record", provider.name, shown)
                gateway.delete_image(provider, ours[shown].name, ours[shown].id)
                leaks.report(provider.name, "images")
            elif shown not in looks.told:
                self.log.warning(
                    "Provider %s: image %s (%s) is marked as ours and has no record. It stays unless the provider says "
                    "clean-leaked-images: true; nodepool alien-image-list lists all",
                    *(provider.name, shown, ours[shown].name),
                )
        looks.told = certain


def _upload(image: ListedImage, provider: Provider) -> tuple[str, str] | None:
    return metadata.upload_of(image.metadata, provider.name)
