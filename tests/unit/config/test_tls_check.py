# SPDX-License-Identifier: Apache-2.0
"""Problems of TLS files stand where the configuration names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.config.loader import load_zookeeper
from nodepool.config.problems import Problems, Severity
from nodepool.config.zookeeper import ZooKeeperSettings, add_tls_problems, refuse_bad_tls_files
from nodepool.exceptions import ConfigError
from tests.support.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def load(path: Path, certificates: Certificates, key: Path) -> ZooKeeperSettings:
    path.write_text(
        "zookeeper-servers:\n  - host: zk1\nzookeeper-tls:\n"
        f"  ca: {certificates.ca}\n  cert: {certificates.client_cert}\n  key: {key}\n",
        encoding="utf-8",
    )
    return load_zookeeper(str(path))


def test_good_files(tmp_path: Path, certificates: Certificates) -> None:
    refuse_bad_tls_files(load(tmp_path / "n.yaml", certificates, certificates.client_key))


def test_file_line_and_key(tmp_path: Path, certificates: Certificates) -> None:
    """G-17"""
    settings = load(tmp_path / "n.yaml", certificates, tmp_path / "gone")
    with pytest.raises(ConfigError) as caught:
        refuse_bad_tls_files(settings)
    assert str(caught.value).startswith(f"{tmp_path}/n.yaml:6: zookeeper-tls.key: there is no file {tmp_path}/gone;")


def test_files_of_another_machine(tmp_path: Path, certificates: Certificates) -> None:
    """Whoever checks a configuration elsewhere may take a missing file for less bad than a wrong one."""
    for key, severity in ((tmp_path / "gone", Severity.WARNING), (certificates.ca, Severity.ERROR)):
        problems = Problems()
        add_tls_problems(load(tmp_path / "n.yaml", certificates, key), problems, Severity.WARNING)
        assert [problem.severity for problem in problems.all()] == [severity]


def test_line_is_no_change_of_the_configuration(tmp_path: Path, certificates: Certificates) -> None:
    old = load(tmp_path / "n.yaml", certificates, certificates.client_key)
    (tmp_path / "n.yaml").write_text("\n" + (tmp_path / "n.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    new = load_zookeeper(str(tmp_path / "n.yaml"))
    assert new.tls_places != old.tls_places
    assert new == old


def test_keys_that_are_missing_are_told_elsewhere() -> None:
    refuse_bad_tls_files(ZooKeeperSettings())
