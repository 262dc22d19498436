# SPDX-License-Identifier: Apache-2.0
"""Both published signatures of getCreateStateMachine work (reference/driver 14)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import Adapter, StateMachine
from nodepool.driver.statemachine.adapter import create_machine_of, wants_request


class Machine(StateMachine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments


class Guide(Adapter):
    def getCreateStateMachine(self, hostname: Any, label: Any, image_external_id: Any, metadata: Any, log: Any) -> Any:
        return Machine(hostname, label, image_external_id, metadata, log)


class Legacy(Adapter):
    def getCreateStateMachine(
        self, hostname: Any, label: Any, image_external_id: Any, metadata: Any, request: Any, az: Any, log: Any
    ) -> Any:
        return Machine(hostname, label, image_external_id, metadata, request, az, log)


class OtherNames(Adapter):
    def getCreateStateMachine(
        self, name: Any, label: Any, image: Any, tags: Any, req: Any, zone: Any, logger: Any
    ) -> Any:
        return Machine(name, label, image, tags, req, zone, logger)


class Whatever(Adapter):
    def getCreateStateMachine(self, *arguments: Any) -> Any:
        return Machine(*arguments)


class GuideWithDefault(Adapter):
    def getCreateStateMachine(
        self, hostname: Any, label: Any, image_external_id: Any, metadata: Any, log: Any, extra: Any = None
    ) -> Any:
        return Machine(hostname, label, image_external_id, metadata, log)


class ExampleOf11(Adapter):
    """As in the example driver of 11.0.0."""

    def getCreateStateMachine(self, hostname: Any, label: Any, metadata: Any, log: Any) -> Any:
        return Machine(hostname, label, metadata, log)


ALL: tuple[Any, ...] = ("np1", "label", "image", {"a": "b"}, "request", "az", "log")
FIVE: tuple[Any, ...] = ("np1", "label", "image", {"a": "b"}, "log")
FOUR: tuple[Any, ...] = ("np1", "label", {"a": "b"}, "log")


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [(Guide, FIVE), (GuideWithDefault, FIVE), (Legacy, ALL), (OtherNames, ALL), (Whatever, ALL), (ExampleOf11, FOUR)],
)
def test_arguments(adapter: Any, expected: tuple[Any, ...]) -> None:
    machine: Any = create_machine_of("cloud", adapter(None))(*ALL)
    assert machine.arguments == expected


def test_keywords() -> None:
    """Names decide, wherever the parameters stand."""

    def make(hostname: Any, label: Any, image_external_id: Any, metadata: Any, request: Any, log: Any) -> Any:
        return None

    assert wants_request(make)
