# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane with OpenShift's projects."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.launcher import ROOT
from tests.support.wait import wait_for

#: Environment variable: the script that starts a control plane. Default: where CI has it, beside the checkout.
VARIABLE = "NODEPOOL_KUBERNETES_RIG"
DEFAULT = ROOT.parent / "shared" / "tools" / "kubernetes-rig"
#: Seconds that a command of it may take.
SECONDS = 120.0
API_SERVER = "kube-apiserver"
#: Seconds that a pod takes to run, and to end.
QUICK = ("--start-seconds", "0.2", "--stop-seconds", "0.2")


def rig_program() -> Path:
    """The script; it may not be there."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def why_no_rig() -> str:
    """Why there is none; "" = there is one."""
    program = rig_program()
    if os.access(program, os.X_OK):
        return ""
    return f"no Kubernetes to test on: there is no {program}, and {VARIABLE} names no other script"


class NoRig(RuntimeError):
    """There is no script that starts a control plane."""


class KubernetesRig:
    """One control plane for all who need one.

    :param directory: of all that it keeps.
    :param options: of the script's ``start``.
    """

    def __init__(self, directory: Path, options: tuple[str, ...] = ("--openshift", *QUICK)) -> None:
        self._directory = directory
        self._options = options
        self._started = False
        self._server = ""
        self._api_server: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def start(self) -> None:
        """Blocks until pods can run. :raises NoRig: there is none."""
        if self._started:
            return
        if missing := why_no_rig():
            raise NoRig(missing)
        self._started = True
        self._run("start", *self._options)
        config = json.loads(self.kubeconfig.read_text(encoding="utf-8"))
        (cluster,) = config["clusters"]
        (user,) = [entry["user"] for entry in config["users"] if entry["name"] == "admin"]
        self._server = cluster["cluster"]["server"]
        self._context.load_verify_locations(cluster["cluster"]["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])

    def stop(self) -> None:
        if self._started:
            self._run("stop")
        if self._process is not None:
            self._process.wait(SECONDS)

    def kill_api_server(self) -> None:
        """Ends the API server as a machine does that loses its power. Blocks until its process is gone."""
        process_id = int(self._api_server_file.read_text(encoding="utf-8").split()[0])
        self._api_server = Path(f"/proc/{process_id}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
        os.kill(process_id, signal.SIGKILL)
        wait_for("the API server is gone", lambda: _started_at(process_id) is None)
        if self._process is not None and self._process.pid == process_id:
            # One that was started here: nobody else learns that it has ended.
            self._process.wait(SECONDS)
            self._process = None

    def start_api_server(self, *options: str) -> None:
        """Starts the one that was killed, at the same port. Blocks until it is ready.

        :param options: of it, beside those that it had.
        """
        self._api_server += options
        self._process = self._new_api_server()
        wait_for("the API server is ready", self._is_ready_or_begun_again, SECONDS)

    def _new_api_server(self) -> subprocess.Popen[bytes]:
        log = self._directory / "run" / f"{API_SERVER}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._api_server, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        # As the script writes it: it stops what it knows.
        self._api_server_file.write_text(f"{process.pid} {_started_at(process.pid)}\n", encoding="utf-8")
        return process

    def _is_ready_or_begun_again(self) -> bool:
        """An API server ends when somebody else has its port for a moment: then there is another one."""
        if self._is_ready():
            return True
        if self._process is not None and self._process.poll() is not None:
            self._process = self._new_api_server()
        return False

    @property
    def _api_server_file(self) -> Path:
        return self._directory / "run" / f"{API_SERVER}.pid"

    def _is_ready(self) -> bool:
        request = urllib.request.Request(f"{self._server}/readyz")
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def kubeconfig(self) -> Path:
        """Its contexts are ``admin``, ``developer`` and ``nobody``."""
        return self._directory / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Where its certificates and keys are, ``<name>.crt`` and ``<name>.key``; the authority is ``ca``."""
        return self._directory / "pki"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the API, as its administrator. :raises urllib.error.HTTPError: it was refused."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._server}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
            return json.load(answer)

    def _run(self, *arguments: str) -> None:
        # Into a file: its daemons keep open what they were given.
        log = self._directory.with_suffix(".log")
        environment = {**os.environ, "K8S_RIG_DIR": str(self._directory)}
        command = [str(rig_program()), *arguments]
        with log.open("ab") as output:
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=SECONDS
            )
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{log.read_text(errors='replace')[-2000:]}")


def _started_at(process_id: int) -> str | None:
    """When the process began, as the kernel counts; None = it does not run."""
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
