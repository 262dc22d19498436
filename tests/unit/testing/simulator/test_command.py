# SPDX-License-Identifier: Apache-2.0
"""What the command lines of all simulators share."""

from __future__ import annotations

import argparse
import os
import signal

import pytest

from nodepool.testing.azure.settings import AzureSettings
from nodepool.testing.azure.simulator import AzureSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal
from nodepool.testing.simulator.settings import SimulatorSettings


def test_settings_are_changed() -> None:
    parser, settings = SimulatorCommand("cloud", "A cloud."), SimulatorSettings()
    options = parser.parse_args(["--port", "81", "--seed", "3", "--settings", '{"latency_seconds": [1, 2]}'])
    parser.fill(settings, options.settings)
    assert (options.port, options.seed, settings.latency_seconds) == (81, 3, (1.0, 2.0))


def test_the_older_name_of_the_option() -> None:
    assert SimulatorCommand("cloud", None).parse_args(["--knobs", "{}"]).settings == "{}"


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "--settings: Expecting property name"), ('{"speed": 1}', "--settings: unknown settings: speed")],
)
def test_wrong_settings(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        SimulatorCommand("cloud", None).fill(SimulatorSettings(), text)
    assert f"python -m nodepool.testing.cloud: error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_and_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with end_signal() as ended:
        os.kill(os.getpid(), number)
        assert ended.wait(10)
    assert signal.getsignal(number) is before


def test_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The simulator answers before clients are told of it, and it has the settings of the command line."""
    began: list[tuple[str, float, str]] = []

    def begin(simulator: AzureSimulator, options: argparse.Namespace) -> None:
        with simulator.cloud() as cloud:
            began.append((simulator.url, cloud.core.knobs.boot_seconds[1], options.file))
        os.kill(os.getpid(), signal.SIGTERM)

    parser = SimulatorCommand("azure", None)
    parser.add_argument("--file")
    arguments = ["--file", "auth.json", "--settings", '{"boot_seconds": [1, 2]}']
    assert parser.run(arguments, AzureSettings(), AzureSimulator, begin) == 0
    address = capsys.readouterr().out.strip()
    assert address.startswith("http://127.0.0.1:")
    assert began == [(address, 2.0, "auth.json")]
