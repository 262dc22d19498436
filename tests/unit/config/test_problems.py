# SPDX-License-Identifier: Apache-2.0
"""What is found in a file: each problem is noted in the line where it belongs (reference/configuration 1 to 6, 11).

``#! T key: text`` is a problem of the severity TOLERATED; its text begins so. Nothing else may be found. A daemon
refuses the file for E (error) and I (incomplete), leaves the provider out for P, and only warns of the others.
``files_of_a_line.txt`` has a file in each line, ``files.txt`` in each paragraph.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from nodepool.config.assembly import validate_here
from nodepool.config.loader import load_config, load_zookeeper
from nodepool.config.problems import MAX_REPORTED, Problem, key_text, show
from nodepool.config.zookeeper import ZooKeeperSettings, refuse_bad_tls_files
from nodepool.exceptions import ConfigError
from nodepool.version import how_to_install
from tests.support.certificates import make_certificates
from tests.support.tables import rows
from tests.unit.config.conftest import HEAD, Files

HERE: Final = Path(__file__).parent
TEXTS: Final = [
    *(HERE / "files_of_a_line.txt").read_text(encoding="utf-8").strip().splitlines(),
    *(HERE / "files.txt").read_text(encoding="utf-8").strip().split("\n\n"),
]
NOTE: Final = re.compile(r"\s#! ")
#: First letters of severities that a daemon refuses a file for.
REFUSED: Final = "EI"


def letter(problem: Problem) -> str:
    return problem.severity.name[0]


def notes(text: str) -> list[tuple[int, str]]:
    """Line and text of each."""
    lines = enumerate(text.splitlines(), 1 if "zookeeper-servers:" in text else 3)
    return [(number, note.strip()) for number, line in lines for note in NOTE.split(line)[1:]]


@pytest.mark.parametrize("text", TEXTS)
def test_problems(files: Files, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """WP-66, WP-67, WP-87, WP-103: every problem is found; validator, daemon and commands say the same."""
    found = files.problems(text)
    wanted = notes(text)
    told = [(one.line or 1, f"{letter(one)} {one.key}: {one.message}") for one in found]
    assert len(told) == len(wanted), told
    for one, other in zip(sorted(told), sorted(wanted), strict=True):
        assert (one[0], one[1][: len(other[1])]) == other
    caplog.clear()
    errors = [str(one) for one in found if letter(one) in REFUSED]
    if errors:
        for load in (load_config, load_zookeeper) if all("zookeeper-" in line for line in errors) else (load_config,):
            with pytest.raises(ConfigError) as caught:
                load(str(files.main))
            assert str(caught.value).splitlines() == errors
    else:
        load_config(str(files.main))
        logged = {(record.levelno, record.getMessage()) for record in caplog.records}
        levels = {"P": logging.ERROR}
        others = {(levels.get(letter(one), logging.WARNING), str(one)) for one in found if letter(one) not in REFUSED}
        assert logged == others


@rows(__file__, "test_columns")
def test_columns(files: Files, text: str, line: str) -> None:
    assert [one for one in files.here(text) if one.startswith(line)]


def test_files_of_this_machine(files: Files) -> None:
    """G-17: one that is missing may be on another machine; a daemon, and one that is here, is right or wrong."""
    made = make_certificates(files.directory)
    head = "zookeeper-servers: [{host: zk}]\nzookeeper-tls:\n"
    names = f"  ca: {made.ca}\n  cert: {made.client_cert}\n"
    assert files.here(f"{head}{names}  key: {made.client_key}\n") == []
    refuse_bad_tls_files(load_zookeeper(str(files.main)))
    (told,) = files.here(f"{head}{names}  key: {made.ca}\n")
    assert told.startswith("error: f.yaml:5:3: zookeeper-tls.key: ")
    (told,) = files.here(f"{head}{names}  key: /no/k\n")
    assert told.startswith("warning: f.yaml:5:3: zookeeper-tls.key: there is no file /no/k;")
    old = load_zookeeper(str(files.main))
    with pytest.raises(ConfigError, match=r"f\.yaml:5: zookeeper-tls\.key: there is no file /no/k;"):
        refuse_bad_tls_files(old)
    new = load_zookeeper(files.write(f"\n{head}{names}  key: /no/k\n")[0])
    assert new.tls_places != old.tls_places
    assert new == old, "a line is no change of the configuration"
    refuse_bad_tls_files(ZooKeeperSettings())


def test_secure_file_of_the_validator(files: Files) -> None:
    """Without it what is missing is a warning here, and with it a problem as for a daemon."""
    assert [one.partition(":")[0] for one in files.here("# zookeeper-servers: none\nlabels: []")] == ["warning"] * 2
    assert files.problems("# zookeeper-servers: none\nlabels: []", HEAD) == []
    told = files.here("# zookeeper-servers: none\nlabels: []", HEAD.splitlines()[0])
    assert [one.partition(": required")[0] for one in told] == ["incomplete: f.yaml: zookeeper-tls"]
    assert "-s" not in told[0]
    (problem,) = validate_here(files.write(HEAD)[0], str(files.directory / "none"))
    assert files.short(str(problem)) == "none: no such file"


def test_clouds_yaml(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud that is not in it, and no such file."""
    clouds = files.directory / "clouds.yaml"
    clouds.write_text("clouds: {other: {auth: {}}}\n", encoding="utf-8")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    text = "providers:\n- name: p\n  driver: openstack\n  cloud: mine\n  pools: []\n"
    place = "warning: f.yaml:6:3: providers[0].cloud: "
    assert files.here(text)[-1].startswith(f"{place}clouds.yaml has no cloud 'mine' (it has: other)")
    clouds.unlink()
    assert files.here(text)[-1].startswith(f"{place}there is no clouds.yaml with the cloud 'mine'")


@pytest.mark.parametrize("key", ["password", "api-token", "client-secret", "api-key", "env-vars"])
def test_no_secret_is_shown(key: str) -> None:
    assert show("4711", ["a", key]) == "something else"


@rows(__file__, "test_one_line_whatever_it_is")
def test_one_line_whatever_it_is(path: list[Any], value: object, expected: str) -> None:
    assert f"{key_text(path)}: {show(value)}" == expected


def test_tracing_is_not_installed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """TR-1: only when it is enabled; a daemon refuses it, too."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    files.load("tracing: {protocol: grpc}")
    (line,) = files.refused("tracing:\n  enabled: true", strict=False)
    assert line.startswith("f.yaml:4: tracing.enabled: opentelemetry")
    assert how_to_install("tracing") in line


def test_many_problems(files: Files) -> None:
    """A hopeless file does not flood the log, and the cost of reporting grows with the file, not with its square."""
    text = "labels:\n" + "- 7\n" * 20_000
    assert len(files.refused(text, strict=False)) == MAX_REPORTED + 1
    assert len([problem for problem in files.problems(text) if "got 7" in str(problem)]) == 20_000
    text = f"labels: [{'7, ' * 20_000}]"
    assert len([problem for problem in files.here(text) if "got 7" in problem]) == 20_000
