# SPDX-License-Identifier: Apache-2.0
"""The command lines of the three programs (reference/commands 1 to 3)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from nodepool.builder.supervisor import STOP_TIMEOUT_SECONDS
from nodepool.cmd import builder, cli, launcher

MAINS = [cli.main, launcher.main, builder.main]


@pytest.mark.parametrize("main", MAINS)
def test_version(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 1: "Nodepool version: <release>", status 0."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("Nodepool version: ")


@pytest.mark.parametrize("main", MAINS)
def test_help(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["-h"])
    assert end.value.code == 0
    assert "/etc/nodepool/nodepool.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("main", MAINS)
def test_unknown_option(main: Callable[[list[str]], int]) -> None:
    """reference/commands 2: argparse usage, status 2."""
    with pytest.raises(SystemExit) as end:
        main(["--nonsense"])
    assert end.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        *(["hold"], ["delete"], ["info"], ["erase"], ["list", "--format", "xml"], ["nonsense"], ["list", "--nonsense"]),
        *(["image-build"], ["image-pause"], ["image-unpause"], ["dib-image-delete"], ["image-rollback", "lab"]),
        *(["image-delete", "--provider", "p", "--image", "i", "--build-id", "b"], ["export-image-data"]),
        *(["import-image-data"], ["image-upload"], ["image-log"], ["image-list", "lab"]),
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 2: help, status 1."""
    assert cli.main([]) == 1
    out = capsys.readouterr().out
    for command in (
        *("list", "hold", "delete", "info", "erase", "installation", "request-list", "label-list", "config-validate"),
        *("image-list", "dib-image-list", "image-status", "image-build", "image-pause", "image-unpause"),
        *("image-delete", "dib-image-delete", "alien-image-list", "image-upload", "image-rollback"),
        *("image-log",),
        *("export-image-data", "import-image-data"),
    ):
        assert command in out.split("commands:")[1].split()


def test_each_command_has_a_sentence_and_an_example() -> None:
    group = cli.make_parser()._subparsers
    assert group is not None
    commands = group._group_actions[0].choices
    assert isinstance(commands, dict)
    for name, command in commands.items():
        assert (command.description or "").endswith("."), name
        assert "example" in (command.epilog or "").lower(), name


@pytest.mark.parametrize("arguments", [["-c", "/x", "list"], ["list", "-c", "/x"], ["-c", "/y", "list", "-c", "/x"]])
def test_files_before_and_after_a_command(arguments: list[str]) -> None:
    options = cli.make_parser().parse_args(arguments)
    assert (options.config, options.secure, options.logconfig, options.debug) == ("/x", None, None, False)


#: Command -> its long options in Nodepool 11, and what else it needs.
OPTIONS_OF_11 = {
    "list": (["--detail"], []),
    "delete": (["--now"], ["1"]),
    "erase": (["--force"], ["cloud"]),
    "image-delete": (["--provider", "--image", "--upload-id", "--build-id"], []),
}


@pytest.mark.parametrize("command", OPTIONS_OF_11)
def test_abbreviations_of_11(command: str) -> None:
    """reference/commands 1: an abbreviation that Nodepool 11 took means the same."""
    options, others = OPTIONS_OF_11[command]
    values = ["x"] if command == "image-delete" else []
    for option in options:
        for length in range(3, len(option) + 1):
            rest = [word for other in options if other != option for word in (other, *values)]
            short = cli.make_parser(command).parse_args([command, *others, option[:length], *values, *rest])
            full = cli.make_parser(command).parse_args([command, *others, option, *values, *rest])
            assert vars(short) == vars(full), option[:length]


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (cli, ["--debug"]),
        (launcher, ["--no-webapp", "--repl"]),
        (builder, ["--build-workers=3", "--upload-workers=3", "--repl"]),
    ],
)
def test_abbreviations_of_11_for_all(module: ModuleType, options: list[str]) -> None:
    """reference/commands 1"""
    for option in options:
        name, equals, value = option.partition("=")
        full = vars(module.make_parser().parse_args([option]))
        assert full != vars(module.make_parser().parse_args([]))
        for length in range(3, len(name) + 1):
            assert vars(module.make_parser().parse_args([f"{name[:length]}{equals}{value}"])) == full


def test_launcher_options() -> None:
    """reference/commands 3"""
    options = launcher.make_parser().parse_args([])
    assert options.pidfile == "/var/run/nodepool/nodepool.pid"
    assert not any((options.debug, options.foreground, options.no_webapp, options.repl))
    options = launcher.make_parser().parse_args(["-d", "-f", "-p", "/x", "--no-webapp", "--repl"])
    assert (options.debug, options.foreground, options.pidfile) == (True, True, "/x")
    assert (options.no_webapp, options.repl) == (True, True)


def test_builder_options() -> None:
    """reference/commands 3"""
    options = builder.make_parser().parse_args([])
    assert options.pidfile == "/var/run/nodepool/nodepool-builder.pid"
    assert (options.build_workers, options.upload_workers) == (1, 4)
    options = builder.make_parser().parse_args(["--build-workers", "2", "--upload-workers", "0", "-d", "--repl"])
    assert (options.build_workers, options.upload_workers) == (2, 0)


@pytest.mark.parametrize("value", ["-1", "many"])
def test_builder_refuses_odd_numbers(value: str) -> None:
    with pytest.raises(SystemExit) as end:
        builder.main(["--build-workers", value])
    assert end.value.code == 2


def test_builder_options_of_ours() -> None:
    """--fake, --stop-timeout, --clean-orphans."""
    options = builder.make_parser().parse_args([])
    assert (options.fake, options.stop_timeout, options.clean_orphans) == (False, STOP_TIMEOUT_SECONDS, False)
    options = builder.make_parser().parse_args(["--fake", "--stop-timeout", "1.5", "--clean-orphans"])
    assert (options.fake, options.stop_timeout, options.clean_orphans) == (True, 1.5, True)


@pytest.mark.parametrize("value", ["-1", "inf", "nan", "soon"])
def test_builder_refuses_odd_times(value: str) -> None:
    with pytest.raises(SystemExit):
        builder.main([f"--stop-timeout={value}"])


def test_builder_without_a_directory(tmp_path: Path) -> None:
    """B-12: it is said before it goes into the background."""
    config = tmp_path / "nodepool.yaml"
    config.write_text("zookeeper-servers: [{host: localhost}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n")
    # A process of its own: a daemon ends its process at once if threads still run.
    command = [sys.executable, "-m", "nodepool.cmd.builder", "-c", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"nodepool-builder: {config}: a builder needs images-dir (")


@pytest.mark.parametrize("module", ["cli", "launcher", "builder"])
def test_help_imports_nothing_heavy(module: str) -> None:
    """Help and version must answer at once, so nothing heavy may be imported for them."""
    heavy = "{'daemon', 'kazoo', 'paramiko', 'prettytable', 'rich', 'statsd', 'voluptuous', 'yaml', 'nodepool.config'}"
    code = f"import sys, nodepool.cmd.{module} as m; m.make_parser().format_help(); print({heavy} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout == "set()\n"
