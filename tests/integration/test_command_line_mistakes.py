# SPDX-License-Identifier: Apache-2.0
"""``nodepool`` with a ZooKeeper that is away and files that are wrong; ``config-validate`` (reference/commands 2)."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from tests.support.command_line import CommandLine
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer


class TestMistakes:
    def test_zookeeper_that_does_not_answer(self, nodepool: CommandLine, zookeeper: ZooKeeperServer) -> None:
        """One clear line with the hosts after a bounded wait."""
        (port,) = free_ports(1)
        text = nodepool.config.read_text(encoding="utf-8").replace(str(zookeeper.tls_port), str(port))
        nodepool.config.write_text(text, encoding="utf-8")
        result = nodepool("list")
        assert result.status == 1
        assert len(result.err.splitlines()) == 1
        assert f"127.0.0.1:{port} (zookeeper-servers[0]): connection refused" in result.err

    def test_interrupt_is_quiet(self, nodepool: CommandLine, zookeeper: ZooKeeperServer) -> None:
        """Ctrl-C while ZooKeeper does not answer: no output, the status that shells expect."""
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            text = nodepool.config.read_text(encoding="utf-8").replace(str(zookeeper.tls_port), str(port))
            nodepool.config.write_text(text, encoding="utf-8")
            process = nodepool.start("list")
            mute.settimeout(60)
            connection, _ = mute.accept()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            connection.close()
        assert (process.returncode, out, err) == (130, "", "")

    @pytest.mark.parametrize("arguments", [["list"], ["config-validate"]])
    def test_missing_configuration(self, nodepool: CommandLine, arguments: list[str]) -> None:
        nodepool.config.unlink()
        result = nodepool(*arguments)
        assert result.status == 1
        assert str(nodepool.config) in result.err
        assert "Traceback" not in result.err

    def test_missing_tls_file(self, nodepool: CommandLine) -> None:
        text = nodepool.config.read_text(encoding="utf-8").replace("client.pem", "missing.pem")
        nodepool.config.write_text(text, encoding="utf-8")
        lines = [number for number, line in enumerate(text.splitlines(), 1) if "missing.pem" in line]
        result = nodepool("list")
        assert result.status == 1
        assert f"nodepool: {nodepool.config}:{lines[0]}: zookeeper-tls.cert: there is no file /" in result.err
        assert "missing.pem" in result.err
        assert len(result.err.splitlines()) == 1

    def test_no_servers(self, nodepool: CommandLine) -> None:
        nodepool.config.write_text("labels: []\n", encoding="utf-8")
        result = nodepool("list")
        assert result.status == 1
        assert "zookeeper-servers" in result.err

    def test_bad_provider_section_does_not_matter(self, nodepool: CommandLine) -> None:
        """Only the ZooKeeper part is needed to look at nodes."""
        with nodepool.config.open("a", encoding="utf-8") as file:
            file.write("diskimages: 17\n")
        assert nodepool("list").status == 0

    def test_debug_log(self, nodepool: CommandLine) -> None:
        result = nodepool("--debug", "list")
        assert result.status == 0
        assert " DEBUG " in result.err


class TestValidate:
    def test_good(self, nodepool: CommandLine) -> None:
        result = nodepool("config-validate")
        assert result.status == 0
        assert "ERROR" not in result.err

    def test_every_problem(self, nodepool: CommandLine) -> None:
        """Every problem is a line with file and line number, and the status is 1."""
        with nodepool.config.open("a", encoding="utf-8") as file:
            file.write("max-hold-agee: 1\nelements-dir: [1]\n")
        result = nodepool("config-validate")
        assert result.status == 1
        problems = [line for line in result.err.splitlines() if f"{nodepool.config}:" in line]
        assert any("max-hold-agee" in line for line in problems)
        assert any("elements-dir" in line for line in problems)

    def test_lines_for_other_programs(self, nodepool: CommandLine) -> None:
        """``file:line:column: key: text``, and nothing before it; JSON and GitHub's form on stdout."""
        with nodepool.config.open("a", encoding="utf-8") as file:
            file.write("max-hold-agee: 1\n")
        number = len(nodepool.config.read_text(encoding="utf-8").splitlines())
        lines = nodepool("config-validate").err.splitlines()
        assert f"{nodepool.config}:{number}:1: max-hold-agee: unknown key" in lines[0]
        assert lines[0].startswith(str(nodepool.config))
        assert lines[-1] == f"{nodepool.config}: 1 problem found"
        found = nodepool("config-validate", "--format", "json")
        assert (found.status, found.err) == (1, "")
        assert [problem["key"] for problem in json.loads(found.out)] == ["max-hold-agee"]
        told = nodepool("config-validate", "--format", "github").out
        assert told.startswith(f"::error file={nodepool.config},line={number},col=1,title=max-hold-agee::unknown key")

    def test_secure_file(self, nodepool: CommandLine) -> None:
        """It is read, and one that is missing is an error."""
        nodepool.config.write_text("labels: []\n", encoding="utf-8")
        assert "name that file with -s" in nodepool("config-validate").err
        secure = nodepool.config.with_name("secure.yaml")
        assert f"{secure}: no such file" in nodepool("-s", str(secure), "config-validate").err

    def test_own_logging(self, nodepool: CommandLine) -> None:
        """With ``--debug`` or ``-l`` the lines go where the log goes."""
        result = nodepool("--debug", "config-validate")
        assert result.status == 0
        assert f"nodepool.cmd.config_validator: {nodepool.config} is valid" in result.err
