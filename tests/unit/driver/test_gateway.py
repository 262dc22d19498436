# SPDX-License-Identifier: Apache-2.0
"""The only caller of drivers: policies, exits, bounds, counts."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import HandlerHooks
from nodepool.driver.framework.policies import Otherwise, Raises
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.framework.running_calls import AT_ONCE
from nodepool.driver.gateway import CallCount, Hook
from nodepool.driver.interface import Driver, Provider
from nodepool.driver.statemachine.adapter import Adapter
from nodepool.driver.statemachine.machine import StateMachine
from nodepool.exceptions import CloudUnavailableException, NotFound, ZKConnectionError
from tests.support.wait import DEADLINE_SECONDS

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
OF_THE_FRAMEWORK = {"wake", "wanted", "on_room", *("why_images_missing", "why_too_large", "why_no_room")}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> list[Hook[Any, Any]]:
    """The table without the hooks that a test adds."""
    kept = list(gateway.HOOKS)
    monkeypatch.setattr(gateway, "HOOKS", kept)
    return kept


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


def test_arguments_are_passed_on_as_they_are(hooks: list[Hook[Any, Any]]) -> None:
    """Drivers name them as they like: they are called positionally."""
    hook: gateway.ProviderHook[[str, int], Any] = gateway.ProviderHook("method", Raises(""))
    assert hook(provider(method=lambda *given: given), "a", 1) == ("a", 1)
    assert hook.counts()[0][:4] == ("method", "cloud", 1, 0)


@pytest.mark.parametrize("error", [RuntimeError("no way"), CloudUnavailableException("away"), NotFound("gone")])
def test_error_goes_to_the_caller(hooks: list[Hook[Any, Any]], error: Exception) -> None:
    """As it is; only an answer is no error of the call."""
    hook: gateway.ProviderHook[[], None] = gateway.ProviderHook("method", Raises(""))
    with pytest.raises(type(error)) as raised:
        hook(provider(method=fail(error)))
    assert raised.value is error
    assert hook.counts()[0][:4] == ("method", "cloud", 1, int(not isinstance(error, NotFound)))


def test_exit_is_an_error_like_others(hooks: list[Hook[Any, Any]]) -> None:
    """A library of a driver may call sys.exit(): that ends no thread."""
    hook: gateway.ProviderHook[[], None] = gateway.ProviderHook("method", Raises(""))
    with pytest.raises(RuntimeError, match=r"the driver called sys\.exit\(3\)"):
        hook(provider(method=lambda: sys.exit(3)))


@pytest.mark.parametrize(
    ("error", "traceback"), [(KeyError("id"), True), (CloudUnavailableException("away"), False), (SystemExit(3), True)]
)
def test_answer_all_the_same(
    hooks: list[Hook[Any, Any]], caplog: pytest.LogCaptureFixture, error: BaseException, traceback: bool
) -> None:
    """Logged; with a traceback if the driver has not told what the error means."""
    hook: gateway.ProviderHook[[str], int] = gateway.ProviderHook("method", Otherwise("logged; 7", lambda: 7))
    assert hook(provider(method=fail(error)), "small") == 7
    (record,) = caplog.records
    assert record.getMessage().startswith("Provider cloud: ")
    assert "method(small)" in record.getMessage()
    assert (record.exc_info is not None) == traceback
    assert hook.counts()[0].errors == 1


def test_lost_connection_says_nothing_of_a_label() -> None:
    """A-13: a request is not declined because ZooKeeper could not be asked for the image."""
    with pytest.raises(ZKConnectionError, match="away"):
        gateway.label_ready(provider(labelReady=fail(ZKConnectionError("away"))), "small")
    assert not gateway.label_ready(provider(labelReady=fail(RuntimeError("no way"))), "small")


def test_method_that_a_driver_does_not_have(hooks: list[Hook[Any, Any]], caplog: pytest.LogCaptureFixture) -> None:
    """That is no trouble."""
    hook: gateway.ProviderHook[[], None] = gateway.ProviderHook("method", Otherwise("logged", lambda: None))
    caplog.set_level(logging.INFO)
    assert hook(provider(method=fail(NotImplementedError()))) is None
    assert caplog.records == []
    assert hook.counts()[0].errors == 0


def test_call_that_must_not_block(
    hooks: list[Hook[Any, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said when it does, but not each time."""
    times = iter([0.0, 0.5, 10.0, 12.5, 20.0, 22.5])
    monkeypatch.setattr(gateway, "monotonic", lambda: next(times))
    monkeypatch.setattr(gateway, "_late", Repeats(clock=lambda: 0.0))
    hook: gateway.ProviderHook[[], None] = gateway.ProviderHook("method", Raises(""), AT_ONCE)
    for _ in range(3):
        hook(provider(method=lambda: None))
    assert caplog.messages == ["Provider cloud: method() took 2.5 s and held up others; it must not block"]
    assert hook.counts() == [CallCount("method", "cloud", 3, 0, 5.5)]


def test_bounded(hooks: list[Hook[Any, Any]], caplog: pytest.LogCaptureFixture) -> None:
    """A driver that hangs is left alone with it."""
    hook: gateway.ProviderHook[[], None] = gateway.ProviderHook("method", Otherwise("logged", lambda: None))
    release = threading.Event()
    assert not hook.within(0.05, provider(method=lambda: release.wait(DEADLINE_SECONDS)))
    assert "Provider cloud: method() has not returned after" in caplog.text
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "Method-cloud")
    release.set()
    thread.join(DEADLINE_SECONDS)
    assert hook.within(DEADLINE_SECONDS, provider(method=fail(RuntimeError("no way"))))
    assert "error in method()" in caplog.text


def test_provider_without_a_name(hooks: list[Hook[Any, Any]]) -> None:
    hook: gateway.ProviderHook[[], int] = gateway.ProviderHook("method", Raises(""))
    assert hook(SimpleNamespace(method=lambda: 7)) == 7
    assert hook.counts()[0].provider == "SimpleNamespace"


def test_handler(hooks: list[Hook[Any, Any]]) -> None:
    """Counted for the provider of its request; properties are asked in the same way."""
    handler = SimpleNamespace(provider=SimpleNamespace(name="cloud"), size=3, method=lambda node: f"did {node}")
    method: gateway.HandlerHook[[str], str] = gateway.HandlerHook("method", Raises(""))
    size: gateway.HandlerProperty[int] = gateway.HandlerProperty("size", Raises(""))
    assert (method(handler, "it"), size(handler)) == ("did it", 3)
    assert [count.provider for count in gateway.call_counts() if count.hook in ("method", "size")] == ["cloud"] * 2


def test_launches_that_a_driver_cannot_count() -> None:
    """A-10: all pools of the provider ask. A broken handler must not have their requests declined."""

    class Broken:
        provider = SimpleNamespace(name="cloud")

        @property
        def alive_thread_count(self) -> int:
            raise RuntimeError("no way")

    assert gateway.alive_thread_count(Broken()) == 1


def test_list_that_is_a_generator(hooks: list[Hook[Any, Any]]) -> None:
    """It is read inside the call: the cloud is asked while it is read."""

    def listing() -> Iterator[int]:
        yield 1
        raise SystemExit(3)

    hook = gateway.ListHook("listing", Raises(""))
    with pytest.raises(RuntimeError, match=r"sys\.exit"):
        hook("cloud", SimpleNamespace(listing=listing))
    assert hook("cloud", SimpleNamespace(listing=lambda: iter([1, 2]))) == [1, 2]


def test_counts_of_many_threads(hooks: list[Hook[Any, Any]]) -> None:
    """No call is lost."""
    hook: gateway.ProviderHook[[], None] = gateway.ProviderHook("method", Raises(""))
    one = provider(method=lambda: None)
    threads = [threading.Thread(target=lambda: [hook(one) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert hook.counts()[0].calls == 2000
