# SPDX-License-Identifier: Apache-2.0
"""The only caller of drivers: which methods it knows, how it calls them, what it makes of their errors."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from nodepool.driver import gateway
from nodepool.driver.framework.handler_hooks import HandlerHooks
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.driver.gateway import NamedHook, Otherwise, ProviderHook, Raises
from nodepool.driver.interface import Driver, Provider
from nodepool.driver.statemachine.adapter import Adapter, StateMachine
from nodepool.exceptions import CloudUnavailableException, NotFound, ZKConnectionError
from tests.support.manual_clock import ManualClock

OWNERS: dict[str, tuple[str, tuple[type[Any], ...]]] = {
    "driver": ("Driver", (Driver,)),
    "provider": ("Provider", (Provider, QuotaSupport)),
    "handler": ("NodeRequestHandler", (HandlerHooks,)),
    "adapter": ("Adapter", (Adapter,)),
    "machine": ("StateMachine", (StateMachine,)),
}
#: Called by the loading of the configuration, which is not a call of a provider.
OF_THE_CONFIGURATION = {"reset", "getProviderConfig"}
#: What a machine or an adapter asks of the framework, or tells it.
OF_THE_FRAMEWORK = {"wake", "wanted", "use"}


def contract_methods(classes: tuple[type[Any], ...]) -> Iterator[str]:
    for cls in classes:
        for name, member in inspect.getmembers(cls):
            # The rest of `QuotaSupport` is what the framework offers to drivers.
            wanted = cls is not QuotaSupport or name in QuotaSupport.__abstractmethods__
            if wanted and not name.startswith("_") and isinstance(member, FunctionType | property):
                yield name


@pytest.mark.parametrize("contract", OWNERS)
def test_every_method_of_the_contract_has_a_policy(contract: str) -> None:
    """And each once."""
    names = [hook.name for hook in gateway.HOOKS if hook.contract == contract]
    assert len(names) == len(set(names))
    # What the handler of the framework answers itself.
    own = {"getDeclinedReasons", "basic_decline_reasons"} if contract == "handler" else set()
    wanted = set(contract_methods(OWNERS[contract][1])) | own
    assert set(names) == wanted - OF_THE_CONFIGURATION - OF_THE_FRAMEWORK


# -- calls


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table without the hooks that a test adds."""
    monkeypatch.setattr(gateway, "HOOKS", list(gateway.HOOKS))


def provider(**methods: Callable[..., Any]) -> Any:
    return SimpleNamespace(name="cloud", **methods)


def fail(error: BaseException) -> Callable[..., Any]:
    def method(*_: object) -> None:
        raise error

    return method


@pytest.mark.parametrize(
    ("error", "raised", "errors", "traceback"),
    [
        (RuntimeError("no way"), RuntimeError, 1, True),
        (KeyError("id"), KeyError, 1, True),
        (CloudUnavailableException("away"), CloudUnavailableException, 1, False),
        (NotFound("gone"), NotFound, 0, None),
        (SystemExit(3), RuntimeError, 1, True),
        (NotImplementedError(), NotImplementedError, 1, None),
    ],
)
def test_errors(
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    raised: type[BaseException],
    errors: int,
    traceback: bool | None,
) -> None:
    """They go to the caller as they are, or are logged and answered all the same; sys.exit() ends no thread.

    With a traceback if the driver has not said what the error means. A method that a driver lacks is no trouble.
    """
    raises: ProviderHook[[], int] = ProviderHook("method", Raises(""))
    with pytest.raises(raised) as caught:
        raises(provider(method=fail(error)))
    assert isinstance(error, SystemExit) or caught.value is error
    answers: ProviderHook[[str], int] = ProviderHook("method", Otherwise("logged; 7", lambda: 7))
    if not isinstance(error, NotFound):
        assert raises.counts()[0].errors == errors or isinstance(error, NotImplementedError)
        assert answers(provider(method=fail(error)), "small") == 7
        assert [(record.exc_info is not None) for record in caplog.records] == (
            [] if traceback is None else [traceback]
        )
        assert all("Provider cloud: " in text and "method(small)" in text for text in caplog.messages)
        assert answers.counts()[0].errors == len(caplog.records)


def test_failing_calls() -> None:
    """OV-2: a question that the cloud does not answer is noted until it answers one; each answer of it is one."""
    asks: NamedHook[[], int] = NamedHook("asks", Raises(""))
    steps = [
        CloudUnavailableException("503"),
        OSError("reset"),
        NotFound("gone"),
        KeyError("id"),
        OSError("late"),
        None,
    ]
    noted = []
    for error in steps:
        with contextlib.suppress(Exception):
            asks("cloud", provider(asks=(lambda: 7) if error is None else fail(error)))
        noted.append(gateway.failing_calls("cloud", 2))
    assert noted == [{}, {"asks": "OSError: reset"}, {}, {}, {"asks": "OSError: late"}, {}]
    assert gateway.failing_calls("another", 0) == {}


def test_slow_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """OV-2: how slow a call was is forgotten after a while: the next one of its kind may be late."""
    clock = ManualClock()
    monkeypatch.setattr(gateway, "monotonic", clock)
    asks: NamedHook[[], None] = NamedHook("asks", Raises(""))
    asks("cloud", provider(asks=lambda: setattr(clock, "now", clock.now + 42.0)))
    for seconds, found in ((100.0, {"asks": 42.0}), (21.0, {})):
        clock.now += seconds
        assert gateway.slow_calls("cloud", 10.0) == found


# -- policies of some hooks, and what a provider need not say itself (reference/driver 2)


def test_policies() -> None:
    """A-13: a request is not declined because ZooKeeper is away. A-10: launches that cannot be counted are one."""
    with pytest.raises(ZKConnectionError, match="away"):
        gateway.label_ready(provider(labelReady=fail(ZKConnectionError("away"))), "small")
    assert not gateway.label_ready(provider(labelReady=fail(RuntimeError("no way"))), "small")
    broken = type("Broken", (), {"provider": provider(), "alive_thread_count": property(fail(RuntimeError("no way")))})
    assert gateway.alive_thread_count(broken()) == 1


def test_what_a_record_is_without(caplog: pytest.LogCaptureFixture) -> None:
    """W-10: what raises is logged, and missing in the record."""
    names = ("limitStatus", "labelErrors", "pauseStatus", "hostStatus")
    broken = provider(**dict.fromkeys(names, fail(ZeroDivisionError())))
    assert (gateway.limit_status(broken, "main"), gateway.host_status(broken)) == ([], [])
    assert (gateway.label_errors(broken), gateway.pause_status(broken)) == ({}, None)
    assert caplog.text.count("ZeroDivisionError") == 4
