# SPDX-License-Identifier: Apache-2.0
"""What happens if a driver raises an exception: the policies of the hooks of `nodepool.driver.gateway`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from nodepool.model.quota import QuotaInformation

R = TypeVar("R")


class Otherwise(Generic[R]):
    """A policy: the exception of a hook is logged, and the caller gets a default answer.

    :param text: for the documentation: what follows.
    :param make: the answer.
    :param but: errors that are raised all the same.
    """

    def __init__(self, text: str, make: Callable[[], R], but: tuple[type[Exception], ...] = ()) -> None:
        self.text = text
        self.make = make
        self.but = but


class Raises:
    """A policy: the caller gets the exception.

    :param text: for the documentation: what the caller does then.
    :param lacking: the same when the driver does not have the method: it raises NotImplementedError.
    :param without: the answer then; None = that is raised, too.
    """

    def __init__(self, text: str, lacking: str = "", without: Callable[[], Any] | None = None) -> None:
        self.text = f"{text}; not implemented: {lacking}" if lacking else text
        self.without = without


def no_limits() -> QuotaInformation:
    return QuotaInformation(default=math.inf)


def one_instance() -> QuotaInformation:
    return QuotaInformation(instances=1)


_NOT_TOLD: Final = "logged; the status record is without it"
NO_LIST: Final = Otherwise[Sequence[Any]](_NOT_TOLD, list)
NO_MAPPING: Final = Otherwise[Mapping[str, Any]](_NOT_TOLD, dict)
NOT_PAUSED: Final = Otherwise[Any](_NOT_TOLD, lambda: None)
