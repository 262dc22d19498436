# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in one of the clouds with uploads and deletions of images, or with all of its API."""

from __future__ import annotations

import signal
import threading
from random import Random
from typing import Any

from tests.chaos.images.builder_site import IMAGE_BYTES, BuilderSite
from tests.chaos.schedule import Fault

#: Of the services that images need.
SERVICES = "*"
SLOW_BYTES_PER_SECOND = 50_000.0


class CloudFaults:
    """A method for each kind of fault; each blocks until it is over."""

    def __init__(self, site: BuilderSite, seed: int) -> None:
        self._site = site
        self._random = Random(f"clouds {seed}")
        #: Cloud -> settings that faults have changed there.
        self._rules: dict[str, dict[Fault, dict[str, Any]]] = {name: {} for name in site.clouds}
        self._lock = threading.Lock()

    def failing_uploads(self, fault: Fault) -> str:
        return self._uploads(fault, kind="fail", status=503, after_bytes=IMAGE_BYTES // 3)

    def broken_uploads(self, fault: Fault) -> str:
        return self._uploads(fault, kind="break", after_bytes=IMAGE_BYTES // 2, stays=fault.amount > 0.7)

    def corrupted_uploads(self, fault: Fault) -> str:
        return self._uploads(fault, kind="corrupt")

    def truncated_uploads(self, fault: Fault) -> str:
        return self._uploads(fault, kind="truncate", after_bytes=IMAGE_BYTES - 1000)

    def slow_uploads(self, fault: Fault) -> str:
        return self._uploads(fault, kind="slow", bytes_per_second=SLOW_BYTES_PER_SECOND)

    def failing_image_deletions(self, fault: Fault) -> str:
        half = fault.amount / 2
        rules = [{"operation": "image.delete_image", "kind": kind, "rate": half} for kind in ("500", "409")]
        return self._change(fault, self._name(fault), errors=rules)

    def cloud_away(self, fault: Fault) -> str:
        return self._change(fault, self._any(), errors=[{"operation": SERVICES, "kind": "503"}])

    def cloud_errors(self, fault: Fault) -> str:
        half = fault.amount / 2
        rules = [{"operation": SERVICES, "kind": kind, "rate": half} for kind in ("500", "html")]
        return self._change(fault, self._any(), errors=rules)

    def cloud_drops(self, fault: Fault) -> str:
        half = fault.amount / 2
        rules = [
            {"operation": SERVICES, "kind": "drop", "rate": half},
            {"operation": SERVICES, "kind": "drop", "rate": half, "after": True},
        ]
        return self._change(fault, self._any(), errors=rules)

    def cloud_frozen(self, fault: Fault) -> str:
        name = self._any()
        self._site.signal_cloud(name, signal.SIGSTOP)
        threading.Event().wait(fault.seconds)
        self._site.signal_cloud(name, signal.SIGCONT)
        return name

    def _uploads(self, fault: Fault, **rule: Any) -> str:
        return self._change(fault, self._name(fault), image_uploads=[{"rate": fault.amount, **rule}])

    def _name(self, fault: Fault) -> str:
        assert fault.launcher is not None
        names = list(self._rules)
        return names[fault.launcher % len(names)]

    def _any(self) -> str:
        return self._random.choice(list(self._rules))

    def _change(self, fault: Fault, name: str, **rules: Any) -> str:
        """Settings for the time of the fault; those of other faults stay."""
        with self._lock:
            self._rules[name][fault] = rules
            self._apply(name)
        threading.Event().wait(fault.seconds)
        with self._lock:
            del self._rules[name][fault]
            self._apply(name)
        return name

    def _apply(self, name: str) -> None:
        knobs: dict[str, list[Any]] = {"errors": [], "image_uploads": []}
        for rules in self._rules[name].values():
            for knob, value in rules.items():
                knobs[knob] = knobs[knob] + value
        self._site.clouds[name].change(**knobs)
