# SPDX-License-Identifier: Apache-2.0
"""The only caller of drivers: which methods it knows, and some of their policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import HandlerHooks
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.driver.interface import Driver, Provider
from nodepool.driver.statemachine.adapter import Adapter, StateMachine
from nodepool.exceptions import ZKConnectionError

CONTRACT: dict[str, tuple[type[Any], ...]] = {
    "driver": (Driver,),
    "provider": (Provider, QuotaSupport),
    "handler": (HandlerHooks,),
    "adapter": (Adapter,),
    "machine": (StateMachine,),
}
#: Called by the loading of the configuration, which is not a call of a provider.
OF_THE_CONFIGURATION = {"reset", "getProviderConfig"}
#: What a machine or an adapter asks of the framework, or tells it; and what words a handler of ours has for an answer.
OF_THE_FRAMEWORK = {
    "wake",
    "wanted",
    "on_room",
    "on_lost",
    "use",
    *("why_images_missing", "why_too_large", "why_no_room"),
}


def provider(**methods: Callable[..., Any]) -> Any:
    return SimpleNamespace(name="cloud", **methods)


def fail(error: BaseException) -> Callable[..., Any]:
    def method(*_: object) -> None:
        raise error

    return method


def contract_methods(classes: tuple[type[Any], ...]) -> Iterator[str]:
    for cls in classes:
        for name, member in inspect.getmembers(cls):
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                if cls is QuotaSupport and name not in QuotaSupport.__abstractmethods__:
                    # What the framework offers to drivers.
                    continue
                yield name


@pytest.mark.parametrize("contract", CONTRACT)
def test_every_method_of_the_contract_has_a_policy(contract: str) -> None:
    """And each once."""
    names = [hook.name for hook in gateway.HOOKS if hook.contract == contract]
    assert len(names) == len(set(names))
    assert set(names) == set(contract_methods(CONTRACT[contract])) - OF_THE_CONFIGURATION - OF_THE_FRAMEWORK


def test_lost_connection_says_nothing_of_a_label() -> None:
    """A-13: a request is not declined because ZooKeeper could not be asked for the image."""
    with pytest.raises(ZKConnectionError, match="away"):
        gateway.label_ready(provider(labelReady=fail(ZKConnectionError("away"))), "small")
    assert not gateway.label_ready(provider(labelReady=fail(RuntimeError("no way"))), "small")


def test_launches_that_a_driver_cannot_count() -> None:
    """A-10: all pools of the provider ask. A broken handler must not have their requests declined."""

    class Broken:
        provider = SimpleNamespace(name="cloud")

        @property
        def alive_thread_count(self) -> int:
            raise RuntimeError("no way")

    assert gateway.alive_thread_count(Broken()) == 1
