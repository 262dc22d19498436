# SPDX-License-Identifier: Apache-2.0
"""Which of the files of zookeeper-tls is wrong, and how."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nodepool.zk.connect_failure import FileProblem, TlsFiles, check_tls_files
from tests.support.certificates import make_certificates


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    made = make_certificates(tmp_path_factory.mktemp("certificates"))
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    made = make_certificates(tmp_path_factory.mktemp("foreign"))
    return TlsFiles(str(made.client_cert), str(made.client_key), str(made.ca))


def only(found: list[FileProblem]) -> FileProblem:
    assert len(found) == 1
    return found[0]


def test_good_files(good: TlsFiles, tmp_path: Path) -> None:
    """Also with certificate and key in one file."""
    assert check_tls_files(good) == []
    both = tmp_path / "both.pem"
    both.write_bytes(Path(good.key).read_bytes() + Path(good.cert).read_bytes())
    assert check_tls_files(TlsFiles(str(both), str(both), good.ca)) == []


@pytest.mark.parametrize("name", TlsFiles._fields)
def test_missing_file(good: TlsFiles, name: str) -> None:
    problem = only(check_tls_files(good._replace(**{name: "/nowhere/file.pem"})))
    assert (problem.name, problem.readable) == (name, False)
    assert problem.text.startswith("there is no file /nowhere/file.pem")


@pytest.mark.parametrize("name", TlsFiles._fields)
def test_garbage(good: TlsFiles, name: str, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("hello\n", encoding="ascii")
    problem = only(check_tls_files(good._replace(**{name: str(garbage)})))
    assert (problem.name, problem.readable) == (name, True)
    assert "in PEM form" in problem.text


@pytest.mark.parametrize("name", TlsFiles._fields)
def test_file_that_is_cut_off(good: TlsFiles, name: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(Path(getattr(good, name)).read_bytes()[:90])
    problem = only(check_tls_files(good._replace(**{name: str(cut)})))
    assert problem.name == name
    assert "is it cut off?" in problem.text


def test_key_of_another_certificate(good: TlsFiles, foreign: TlsFiles) -> None:
    problem = only(check_tls_files(good._replace(key=foreign.key)))
    assert problem.name == "key"
    assert f"does not belong to the certificate {good.cert}" in problem.text


def test_exchanged(good: TlsFiles) -> None:
    found = check_tls_files(good._replace(cert=good.key, key=good.cert))
    assert [problem.name for problem in found] == ["cert", "key"]
    assert all("exchanged?" in problem.text for problem in found)


@pytest.mark.parametrize("form", [["pkcs8", "-topk8"], ["ec", "-aes128"]])
def test_pass_phrase(good: TlsFiles, tmp_path: Path, form: list[str]) -> None:
    """OpenSSL would ask for it on the terminal."""
    key = tmp_path / "protected.key"
    output = ["-passout", "pass:secret", "-out", str(key)]
    subprocess.run(["openssl", *form, "-in", good.key, *output], check=True, capture_output=True, timeout=60)
    problem = only(check_tls_files(good._replace(key=str(key))))
    assert "protected by a pass phrase" in problem.text
    assert "secret" not in problem.text


@pytest.mark.parametrize(
    ("path", "words"), [("/", "is a directory"), ("nul\0byte", "cannot be read"), ("/dev/null/x", "Not a directory")]
)
def test_no_file(good: TlsFiles, path: str, words: str) -> None:
    problem = only(check_tls_files(good._replace(ca=path)))
    assert words in problem.text
    assert not problem.readable


def test_file_of_somebody_else(good: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """root may read everything: so the system's answer is made up."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert [problem.name for problem in check_tls_files(good)] == list(TlsFiles._fields)
    assert all(f"uid {os.geteuid()}" in problem.text for problem in check_tls_files(good))
