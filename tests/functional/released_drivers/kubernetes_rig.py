# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane with OpenShift's projects."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import ROOT

#: Environment variable: the script that starts a control plane. Default: where CI has it, beside the checkout.
VARIABLE = "NODEPOOL_KUBERNETES_RIG"
DEFAULT = ROOT.parent / "shared" / "tools" / "kubernetes-rig"
#: Seconds that a command of it may take.
SECONDS = 120.0


def rig_program() -> Path:
    """The script; it may not be there."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


class KubernetesRig:
    """One control plane for all who need one. :param directory: of all that it keeps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started = False
        self._server = ""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def start(self) -> None:
        """Blocks until pods can run. Skips the test where there is no rig."""
        if self._started:
            return
        program = rig_program()
        if not os.access(program, os.X_OK):
            pytest.skip(f"no Kubernetes to test on: there is no {program}, and {VARIABLE} names no other script")
        self._started = True
        self._run("start", "--openshift", "--start-seconds", "0.2", "--stop-seconds", "0.2")
        config = json.loads(self.kubeconfig.read_text(encoding="utf-8"))
        (cluster,) = config["clusters"]
        (user,) = [entry["user"] for entry in config["users"] if entry["name"] == "admin"]
        self._server = cluster["cluster"]["server"]
        self._context.load_verify_locations(cluster["cluster"]["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])

    def stop(self) -> None:
        if self._started:
            self._run("stop")

    @property
    def kubeconfig(self) -> Path:
        """Its contexts are ``admin``, ``developer`` and ``nobody``."""
        return self._directory / "kubeconfig"

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
