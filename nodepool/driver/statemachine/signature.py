# SPDX-License-Identifier: Apache-2.0
"""The two signatures of `Adapter.getCreateStateMachine` (reference/driver 14)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Adapter, Log
    from nodepool.driver.statemachine.machine import StateMachine
    from nodepool.model.request import NodeRequest

#: (hostname, label, image_external_id, metadata, request, az, log) -> machine
MakeCreateMachine = Callable[
    [str, "LabelSettings", Any, dict[str, str], "NodeRequest", "str | None", "Log"], "StateMachine"
]


def create_machine_of(provider_name: str, adapter: Adapter) -> MakeCreateMachine:
    """How to call an adapter, whichever of the two signatures it has."""

    def make(*arguments: Any) -> StateMachine:
        machine: StateMachine = gateway.get_create_state_machine(provider_name, adapter, *arguments)
        return machine

    signature = adapter.getCreateStateMachine
    if wants_request(signature):
        return make

    with_image = wants_image(signature)

    def call(
        hostname: str,
        label: LabelSettings,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest,
        az: str | None,
        log: Log,
    ) -> StateMachine:
        if with_image:
            return make(hostname, label, image_external_id, metadata, log)
        return make(hostname, label, metadata, log)

    return call


def wants_image(make: Callable[..., Any]) -> bool:
    """Does it take the image? The example of 11.0.0 does not; who copied that has no uploaded images."""
    return list(inspect.signature(make).parameters) != ["hostname", "label", "metadata", "log"]


def wants_request(make: Callable[..., Any]) -> bool:
    """Does it take ``request`` and ``az`` before ``log``?"""
    parameters = list(inspect.signature(make).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if {"request", "az"} & {p.name for p in positional}:
        return True
    return len(positional) >= 7 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
