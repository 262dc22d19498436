# SPDX-License-Identifier: Apache-2.0
"""What a Nodepool needs around it: certificates, a ZooKeeper with TLS, and hosts that answer SSH."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from demo_lib.errors import DemoError
from demo_lib.processes import Process, Processes, find_program, run

#: Words of a command line.
Words = list[str | Path]

JAVA_LIBRARIES = Path("/usr/share/java")
SERVER_LIBRARIES = ("netty-*", "metrics-core", "snappy-java", "slf4j-simple")

ZOOKEEPER_CONFIG = """\
tickTime=1000
minSessionTimeout=2000
dataDir={directory}/data
secureClientPortAddress=127.0.0.1
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={ca}/server.keystore.pem
ssl.trustStore.location={ca}/ca.pem
ssl.clientAuth=need
admin.enableServer=false
"""

SSHD_CONFIG = """\
Port {port}
{addresses}
HostKey {directory}/host_ed25519
HostKey {directory}/host_ecdsa
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100
LogLevel VERBOSE
"""


def make_certificates(directory: Path) -> None:
    """An own authority, one certificate for the server and one for its clients, all for ``localhost``. Blocks."""
    openssl = find_program("openssl")
    directory.mkdir()
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    authority: Words = ["-keyout", directory / "ca.key", "-out", directory / "ca.pem"]
    run([openssl, "req", "-x509", *key, "-days", "30", "-subj", "/CN=Nodepool demo authority", *authority])
    names = directory / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        request = directory / f"{name}.csr"
        run([openssl, "req", *key, "-subj", "/CN=localhost", "-keyout", directory / f"{name}.key", "-out", request])
        signed_by: Words = ["-CA", directory / "ca.pem", "-CAkey", directory / "ca.key", "-CAcreateserial"]
        certificate: Words = ["-extfile", names, "-out", directory / f"{name}.pem"]
        run([openssl, "x509", "-req", "-in", request, "-days", "30", *signed_by, *certificate])
    keystore = directory / "server.keystore.pem"
    keystore.write_text((directory / "server.key").read_text() + (directory / "server.pem").read_text())
    for secret in (*directory.glob("*.key"), keystore):
        secret.chmod(0o600)


def start_zookeeper(processes: Processes, directory: Path, ca: Path, port: int) -> Process:
    """Start a server of our own, with nothing but a TLS port on loopback. Does not wait until it answers."""
    library = JAVA_LIBRARIES / "zookeeper.jar"
    if not library.exists():
        raise DemoError(f"{library} is missing: install the Debian package libzookeeper-java")
    directory.mkdir()
    config = directory / "zoo.cfg"
    config.write_text(ZOOKEEPER_CONFIG.format(directory=directory, ca=ca, port=port))
    # The library's own class path lacks what its TLS server needs.
    more = [path for name in SERVER_LIBRARIES for path in sorted(JAVA_LIBRARIES.glob(f"{name}.jar"))]
    class_path = ":".join(str(path) for path in (library, *more))
    command: Words = [find_program("java"), "-Xmx256m", "-cp", class_path]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", config]
    return processes.start("zookeeper", command, directory / "zookeeper.log")


def start_sshd(processes: Processes, directory: Path, addresses: Sequence[str], port: int) -> Process:
    """Start one SSH server, with its own host keys, that answers on all these addresses. Does not wait for it."""
    directory.mkdir()
    for kind in ("ed25519", "ecdsa"):
        run([find_program("ssh-keygen"), "-q", "-t", kind, "-N", "", "-f", directory / f"host_{kind}"])
    config = directory / "sshd_config"
    listen = "\n".join(f"ListenAddress {address}" for address in addresses)
    config.write_text(SSHD_CONFIG.format(port=port, addresses=listen, directory=directory))
    if os.geteuid() == 0:
        # Where the service is not running, nothing has made the directory that sshd locks itself into.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log = directory / "sshd.log"
    return processes.start("sshd", [find_program("sshd"), "-D", "-e", "-f", config], log)
