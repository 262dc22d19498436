# SPDX-License-Identifier: Apache-2.0
"""A throw-away certificate authority, made with the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.requirements import MissingRequirement


@dataclass(frozen=True)
class Certificates:
    """PEM files. ``keystore`` holds the server's key and certificate together, as ZooKeeper wants them."""

    ca: Path
    client_cert: Path
    client_key: Path
    keystore: Path

    def section(self) -> dict[str, str]:
        """Those of a client, as ``zookeeper-tls`` has them."""
        return {"cert": str(self.client_cert), "key": str(self.client_key), "ca": str(self.ca)}

    def options(self) -> dict[str, Any]:
        """The same as arguments of a client of ours or of Zuul's."""
        return {f"tls_{name}": path for name, path in self.section().items()}

    def copied(self, directory: Path, place: str) -> Certificates:
        """Copies of a client's in a directory that a container or a tree has at another place."""
        paths = (self.ca, self.client_cert, self.client_key)
        ca, cert, key = (Path(place, Path(shutil.copy(path, directory)).name) for path in paths)
        return Certificates(ca, cert, key, self.keystore)


def make_certificates(directory: Path, hosts: Iterable[str] = ()) -> Certificates:
    """Makes a CA, a server and a client certificate for localhost in ``directory`` (about 0.1 s).

    :param hosts: other names that the certificates are for.
    :raises MissingRequirement: there is no openssl program.
    """
    if shutil.which("openssl") is None:
        raise MissingRequirement("the openssl program", "apt-get install openssl")
    directory.mkdir(parents=True, exist_ok=True)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    # Python 3.13 takes no authority and no certificate without these.
    usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    options = ["-x509", "-days", "30", "-subj", "/CN=test-ca", *usage, "-keyout", "ca.key", "-out", "ca.pem"]
    _openssl(directory, "req", *new_key, *options)
    names = ",".join(f"DNS:{host}" for host in ("localhost", *hosts))
    keys = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    (directory / "extensions").write_text(f"subjectAltName={names},IP:127.0.0.1\n{keys}", encoding="ascii")
    for name in ("server", "client"):
        _openssl(directory, "req", *new_key, "-subj", "/CN=localhost", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        _openssl(
            directory,
            *("x509", "-req", "-in", f"{name}.csr", "-days", "30", "-extfile", "extensions"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem"),
        )
    keystore = directory / "keystore.pem"
    keystore.write_bytes((directory / "server.key").read_bytes() + (directory / "server.pem").read_bytes())
    return Certificates(directory / "ca.pem", directory / "client.pem", directory / "client.key", keystore)


def _openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)
