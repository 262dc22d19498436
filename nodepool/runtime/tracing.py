# SPDX-License-Identifier: Apache-2.0
"""`Tracing`: spans of this daemon go where its configuration says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.guard import Guard
from nodepool.tracing import spans
from nodepool.tracing.sending import Exporter

if TYPE_CHECKING:
    from nodepool.tracing.sending import OtlpSettings

#: At the end, and with a new configuration: so long for what waits to be sent.
FLUSH_SECONDS: Final = 5.0


class TracedConfig(Protocol):
    """The part of the configuration that is looked at."""

    def tracing_settings(self) -> OtlpSettings | None: ...


class Tracing:
    """For the main thread of a daemon."""

    def __init__(self, log: logging.Logger) -> None:
        self.log = log
        self._settings: OtlpSettings | None = None
        self._exporter: Exporter | None = None

    def follow(self, config: TracedConfig) -> None:
        """Begin, end, or send elsewhere. Blocks at most `FLUSH_SECONDS`, if something changed. Does not raise."""
        settings = config.tracing_settings()
        if settings == self._settings and (settings is None) == (self._exporter is None):
            return
        self.stop()
        self._settings = settings
        if settings is None:
            return
        # Files and libraries: whatever is wrong with them, the daemon serves.
        with Guard(self.log, "No traces are recorded"):
            try:
                self._start(settings)
            except (OSError, ValueError) as error:
                self.log.error("No traces are recorded: %s", error)

    def _start(self, settings: OtlpSettings) -> None:
        # The libraries take 0.3 s to be imported.
        from nodepool.tracing.sending import OtlpTarget

        name = settings.endpoint or "the collector on this host"
        exporter = Exporter(OtlpTarget(settings), name)
        exporter.start()
        spans.use(exporter)
        self._exporter = exporter
        self.log.info("Traces go to %s by %s", name, settings.protocol)

    def stop(self) -> None:
        """Record nothing more, and send what waits. Blocks at most a little more than `FLUSH_SECONDS`."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            spans.stop_using(exporter)
            exporter.stop(FLUSH_SECONDS)
