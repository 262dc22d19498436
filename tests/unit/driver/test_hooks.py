# SPDX-License-Identifier: Apache-2.0
"""How methods of drivers are called: policies, exits, bounds, counts."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver import gateway
from nodepool.driver import hooks as hooks_module
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.gateway import CallCount
from nodepool.driver.hooks import AT_ONCE, Hook, Otherwise, Raises, RunningCalls
from nodepool.exceptions import CloudUnavailableException, NotFound
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_SECONDS


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> list[Hook[Any, Any]]:
    """The table without the hooks that a test adds."""
    kept = list(gateway.HOOKS)
    for module in (gateway, hooks_module):
        monkeypatch.setattr(module, "HOOKS", kept)
    return kept


def provider(**methods: Callable[..., Any]) -> Any:
    return SimpleNamespace(name="cloud", **methods)


def fail(error: BaseException) -> Callable[..., Any]:
    def method(*_: object) -> None:
        raise error

    return method


def test_arguments_are_passed_on_as_they_are(hooks: list[Hook[Any, Any]]) -> None:
    """Drivers name them as they like: they are called positionally."""
    hook: hooks_module.ProviderHook[[str, int], Any] = hooks_module.ProviderHook("method", Raises(""))
    assert hook(provider(method=lambda *given: given), "a", 1) == ("a", 1)
    assert hook.counts()[0][:4] == ("method", "cloud", 1, 0)


@pytest.mark.parametrize("error", [RuntimeError("no way"), CloudUnavailableException("away"), NotFound("gone")])
def test_error_goes_to_the_caller(hooks: list[Hook[Any, Any]], error: Exception) -> None:
    """As it is; only an answer is no error of the call."""
    hook: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Raises(""))
    with pytest.raises(type(error)) as raised:
        hook(provider(method=fail(error)))
    assert raised.value is error
    assert hook.counts()[0][:4] == ("method", "cloud", 1, int(not isinstance(error, NotFound)))


def test_exit_is_an_error_like_others(hooks: list[Hook[Any, Any]]) -> None:
    """A library of a driver may call sys.exit(): that ends no thread."""
    hook: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Raises(""))
    with pytest.raises(RuntimeError, match=r"the driver called sys\.exit\(3\)"):
        hook(provider(method=lambda: sys.exit(3)))


@pytest.mark.parametrize(
    ("error", "traceback"), [(KeyError("id"), True), (CloudUnavailableException("away"), False), (SystemExit(3), True)]
)
def test_answer_all_the_same(
    hooks: list[Hook[Any, Any]], caplog: pytest.LogCaptureFixture, error: BaseException, traceback: bool
) -> None:
    """Logged; with a traceback if the driver has not told what the error means."""
    hook: hooks_module.ProviderHook[[str], int] = hooks_module.ProviderHook("method", Otherwise("logged; 7", lambda: 7))
    assert hook(provider(method=fail(error)), "small") == 7
    (record,) = caplog.records
    assert record.getMessage().startswith("Provider cloud: ")
    assert "method(small)" in record.getMessage()
    assert (record.exc_info is not None) == traceback
    assert hook.counts()[0].errors == 1


def test_method_that_a_driver_does_not_have(hooks: list[Hook[Any, Any]], caplog: pytest.LogCaptureFixture) -> None:
    """That is no trouble."""
    hook: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Otherwise("logged", lambda: None))
    caplog.set_level(logging.INFO)
    assert hook(provider(method=fail(NotImplementedError()))) is None
    assert caplog.records == []
    assert hook.counts()[0].errors == 0


def test_call_that_must_not_block(
    hooks: list[Hook[Any, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said when it does, but not each time."""
    times = iter([0.0, 0.5, 10.0, 12.5, 20.0, 22.5])
    monkeypatch.setattr(hooks_module, "monotonic", lambda: next(times))
    monkeypatch.setattr(hooks_module, "_late", Repeats(clock=lambda: 0.0))
    hook: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Raises(""), AT_ONCE)
    for _ in range(3):
        hook(provider(method=lambda: None))
    assert caplog.messages == ["Provider cloud: method() took 2.5 s and held up others; it must not block"]
    assert hook.counts() == [CallCount("method", "cloud", 3, 0, 5.5)]


def test_slow_calls(hooks: list[Hook[Any, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """E-10: questions to a cloud that took long at the last time, or have not returned yet; a quick one ends it."""
    clock = ManualClock()
    monkeypatch.setattr(hooks_module, "monotonic", clock)
    monkeypatch.setattr(hooks_module, "RUNNING", RunningCalls(clock))
    hook: hooks_module.NamedHook[[float], None] = hooks_module.NamedHook("listed", Raises(""))
    other: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Raises(""))
    seen = []

    def listed(seconds: float) -> None:
        clock.pass_seconds(seconds)
        seen.append(gateway.slow_calls("cloud", 30.0))

    cloud = provider(listed=listed, method=lambda: clock.pass_seconds(100))
    other(cloud)
    for seconds in (40.0, 1.0, 1.0):
        hook("cloud", cloud, seconds)
    assert seen == [{"listed": 40.0}, {"listed": 40.0}, {}]
    assert gateway.slow_calls("elsewhere", 30.0) == {}


def test_bounded(hooks: list[Hook[Any, Any]], caplog: pytest.LogCaptureFixture) -> None:
    """A driver that hangs is left alone with it."""
    hook: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Otherwise("logged", lambda: None))
    release = threading.Event()
    assert not hook.within(0.05, provider(method=lambda: release.wait(DEADLINE_SECONDS)))
    assert "Provider cloud: method() has not returned after" in caplog.text
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "Method-cloud")
    release.set()
    thread.join(DEADLINE_SECONDS)
    assert hook.within(DEADLINE_SECONDS, provider(method=fail(RuntimeError("no way"))))
    assert "error in method()" in caplog.text


def test_provider_without_a_name(hooks: list[Hook[Any, Any]]) -> None:
    hook: hooks_module.ProviderHook[[], int] = hooks_module.ProviderHook("method", Raises(""))
    assert hook(SimpleNamespace(method=lambda: 7)) == 7
    assert hook.counts()[0].provider == "SimpleNamespace"


def test_handler(hooks: list[Hook[Any, Any]]) -> None:
    """Counted for the provider of its request; properties are asked in the same way."""
    handler = SimpleNamespace(provider=SimpleNamespace(name="cloud"), size=3, method=lambda node: f"did {node}")
    method: hooks_module.HandlerHook[[str], str] = hooks_module.HandlerHook("method", Raises(""))
    size: hooks_module.HandlerProperty[int] = hooks_module.HandlerProperty("size", Raises(""))
    assert (method(handler, "it"), size(handler)) == ("did it", 3)
    assert [count.provider for count in gateway.call_counts() if count.hook in ("method", "size")] == ["cloud"] * 2


def test_list_that_is_a_generator(hooks: list[Hook[Any, Any]]) -> None:
    """It is read inside the call: the cloud is asked while it is read."""

    def listing() -> Iterator[int]:
        yield 1
        raise SystemExit(3)

    hook = hooks_module.ListHook("listing", Raises(""))
    with pytest.raises(RuntimeError, match=r"sys\.exit"):
        hook("cloud", SimpleNamespace(listing=listing))
    assert hook("cloud", SimpleNamespace(listing=lambda: iter([1, 2]))) == [1, 2]


def test_counts_of_many_threads(hooks: list[Hook[Any, Any]]) -> None:
    """No call is lost."""
    hook: hooks_module.ProviderHook[[], None] = hooks_module.ProviderHook("method", Raises(""))
    one = provider(method=lambda: None)
    threads = [threading.Thread(target=lambda: [hook(one) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert hook.counts()[0].calls == 2000
