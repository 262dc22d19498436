# SPDX-License-Identifier: Apache-2.0
"""A real OpenSSH server that answers on every 127.x address: as many static hosts as a test wants."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.requirements import MissingRequirement

KEY_TYPES = ("ed25519", "ecdsa", "rsa")
PRIVILEGE_SEPARATION_DIRECTORY = "/run/sshd"
REMEDY = "apt-get install openssh-server"


class SshServer:
    """``sshd -D -e`` with own host keys on a free port of 0.0.0.0. It serves host key scans.

    :ivar client_key: file with the private key of the only one who can log in, as the `user` who runs the tests.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client_key = directory / "key_client"
        self.user = getpass.getuser()
        self.port = 0
        self._process: ChildProcess | None = None

    @property
    def host_keys(self) -> list[str]:
        """``"<type> <base64>"`` of each host key, as they appear in a node."""
        lines = [(self.directory / f"key_{kind}.pub").read_text(encoding="ascii") for kind in KEY_TYPES]
        return [" ".join(line.split()[:2]) for line in lines]

    def start(self) -> None:
        """Starts it and blocks until it answers. The keys and the port stay the same when it is started again.

        :raises MissingRequirement: sshd or its run directory is missing.
        :raises AssertionError: it does not answer; the text has the end of its log.
        """
        program = _find_sshd()
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, kind in {**{kind: kind for kind in KEY_TYPES}, "client": "ed25519"}.items():
            if not (self.directory / f"key_{name}").exists():
                command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", f"key_{name}"]
                subprocess.run(command, cwd=self.directory, check=True, capture_output=True, timeout=60)
        self.port = self.port or free_ports(1, "0.0.0.0")[0]
        config = self.directory / "sshd_config"
        config.write_text(self._settings(), encoding="utf-8")
        self._process = ChildProcess([program, "-D", "-e", "-f", str(config)], self.directory / "log")
        self._process.start_until("sshd", self._answers)

    @property
    def pid(self) -> int:
        """Of the running server. It reads its files again when it gets SIGHUP."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Ends it and waits for that."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _settings(self) -> str:
        lines = [f"Port {self.port}", "ListenAddress 0.0.0.0", "PidFile none", "UsePAM no", "StrictModes no"]
        lines += [f"AuthorizedKeysFile {self.client_key}.pub"]
        # Many scans at once are what the tests are about; the default would drop some of them at random.
        lines += ["MaxStartups 1000", "LoginGraceTime 30", "PasswordAuthentication no"]
        lines += [f"HostKey {self.directory}/key_{kind}" for kind in KEY_TYPES]
        return "\n".join(lines) + "\n"


def _find_sshd() -> str:
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh-keygen") is None:
        raise MissingRequirement("an OpenSSH server", REMEDY)
    if not os.path.isdir(PRIVILEGE_SEPARATION_DIRECTORY):
        try:
            # Another run of the tests may make it at this moment.
            os.makedirs(PRIVILEGE_SEPARATION_DIRECTORY, 0o755, exist_ok=True)
        except OSError as error:
            remedy = f"mkdir {PRIVILEGE_SEPARATION_DIRECTORY} as root"
            raise MissingRequirement(f"the directory {PRIVILEGE_SEPARATION_DIRECTORY} ({error})", remedy) from None
    return program
