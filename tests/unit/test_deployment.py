# SPDX-License-Identifier: Apache-2.0
"""What installs and runs Nodepool: Dockerfile, compose, Kubernetes, units of systemd, packages and dependencies."""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from nodepool.cmd.builder import make_parser as builder_parser
from nodepool.cmd.cli import make_parser as cli_parser
from nodepool.cmd.launcher import make_parser as launcher_parser
from nodepool.cmd.tls import make_parser as tls_parser
from nodepool.cmd.web import make_parser as web_parser
from nodepool.config.assembly import validate
from nodepool.config.loader import load_config

ROOT: Final = Path(__file__).parents[2]
KUBERNETES: Final = ROOT / "etc" / "kubernetes"
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")
#: User and group of the images.
USER: Final = 10001
PARSERS: Final = {
    "nodepool": cli_parser,
    "nodepool-launcher": launcher_parser,
    "nodepool-builder": builder_parser,
    "nodepool-web": web_parser,
    "nodepool-tls": tls_parser,
}


def lines(path: Path) -> list[str]:
    """Without comments."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


KUSTOMIZATION: Final = loaded(KUBERNETES / "kustomization.yaml")
MANIFESTS: Final = {
    f"{data['kind']}/{data['metadata']['name']}": data
    for name in KUSTOMIZATION["resources"]
    for data in yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8"))
}
#: The pod of each workload.
PODS: Final = {
    data["metadata"]["name"]: data["spec"]["template"]["spec"]
    for data in MANIFESTS.values()
    if data["kind"] in ("Deployment", "StatefulSet")
}


def test_compose() -> None:
    """Each service has a health check. Ours is that of its image, which the format of OCI would not keep.

    ZooKeeper's image has a digest; to ours tools/release gives it (tests/functional/containers).
    """
    services = loaded(ROOT / "etc" / "compose.yaml")["services"]
    assert set(services) == {"zookeeper", "launcher", "web", "builder"}
    assert re.fullmatch(r"docker.io/library/zookeeper:[\d.]+@sha256:[0-9a-f]{64}", services["zookeeper"]["image"])
    for name, service in services.items():
        kind, *command = service["healthcheck"]["test"]
        assert kind == "CMD"
        if name != "zookeeper":
            assert parses(command)
            assert f"CMD {json.dumps([*command])}\n" in DOCKERFILE


def parses(command: list[str]) -> bool:
    """Is it a command line of ours?"""
    PARSERS[command[0]]().parse_args(command[1:])
    return True


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests(name: str) -> None:
    """For the oldest and the newest release that they are for; services find their pods."""
    for release in ("1.25", "1.37"):
        kubernetes_validate.validate(MANIFESTS[name], release, strict=True)
    if name.startswith("Service/"):
        assert MANIFESTS[name]["spec"]["selector"] == {"app.kubernetes.io/name": name.removeprefix("Service/")}


@pytest.mark.parametrize("name", PODS)
def test_pods(name: str) -> None:
    """Images have a tag that stays, and are targets of the Dockerfile; launchers finish their launches."""
    pod = PODS[name]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
    assert pod["automountServiceAccountToken"] is False
    assert "podAntiAffinity" in pod["affinity"]
    (container,) = pod["containers"]
    assert "readinessProbe" in container
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert mounts - volumes == ({"images"} if name == "nodepool-builder" else set())
    assert volumes <= mounts
    tags = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
    assert re.fullmatch(r"\d+\.\d+\.\d+", tags[container["image"]])
    assert f"FROM base AS {container['image']}\n" in DOCKERFILE
    assert parses(container["command"])
    if name == "nodepool-launcher":
        assert "--drain" in container["command"]
        assert pod["terminationGracePeriodSeconds"] > 600
        assert "preStop" in container["lifecycle"]


def test_configuration_of_kubernetes() -> None:
    """Each ConfigMap and Secret of a volume is generated."""
    path = str(KUBERNETES / "nodepool.yaml")
    assert validate(path) == []
    assert load_config(path).images_dir == "/opt/nodepool/images"
    generated = {item["name"] for kind in ("configMap", "secret") for item in KUSTOMIZATION[f"{kind}Generator"]}
    names = r"(?:secretName|name): (nodepool-(?:config|zookeeper|clouds))"
    assert set(re.findall(names, str(PODS).replace("'", ""))) == generated


@pytest.mark.parametrize(
    "path", ["etc/kubernetes/tls/zk-client.key", "etc/tls/server.pem", "etc/client.p12", "etc/ca.key"]
)
def test_keys(path: str) -> None:
    """Keys that were made beside the files do not get into commits, images and packages."""
    for name in (".gitignore", ".dockerignore"):
        assert any(ignores(line.lstrip("/").rstrip("/"), path) for line in lines(ROOT / name)), name
    words = [line.split() for line in lines(ROOT / "MANIFEST.in")]
    excluded = [word for line in words if line[:2] == ["recursive-exclude", "etc"] for word in line[2:]]
    pruned = [line[1] for line in words if line[0] == "prune"]
    by_name = any(fnmatch.fnmatch(Path(path).name, pattern) for pattern in excluded)
    assert by_name or any(path.startswith(f"{directory}/") for directory in pruned)


def ignores(pattern: str, path: str) -> bool:
    """As git and docker do, for the patterns that we have: ``**/`` stands for any directories, also for none."""
    return any(
        fnmatch.fnmatch(str(part), each)
        for part in (Path(path), *Path(path).parents)
        for each in (pattern, pattern.replace("**/", ""))
    )


@pytest.mark.parametrize("name", ["nodepool-launcher", "nodepool-builder", "nodepool-web"])
def test_units(name: str) -> None:
    """In the foreground, as user nodepool, with a watchdog. A stop leaves the directory of pid files."""
    path = ROOT / "etc" / f"{name}.service"
    # The last line of a name counts.
    settings = dict(line.split("=", 1) for line in lines(path) if "=" in line)
    wanted = {"ExecStart": f"{name} -f", "Type": "notify", "NotifyAccess": "main", "User": "nodepool"}
    wanted |= {"Group": "nodepool", "RuntimeDirectory": "nodepool", "RuntimeDirectoryPreserve": "yes"}
    assert settings.items() >= wanted.items()
    assert float(settings["WatchdogSec"]) > 0
    if name != "nodepool-builder":
        # openstacksdk asks for addresses of the host when a provider starts.
        assert "AF_NETLINK" in settings["RestrictAddressFamilies"].split()
    else:
        # SIGTERM does not reach what diskimage-builder's traps write to, and there is time for them.
        assert (settings["KillMode"], float(settings["TimeoutStopSec"]) >= 60) == ("mixed", True)


REQUIREMENT = re.compile(r"([\w.-]+)(\[[a-z0-9,-]+\])?(>=\d[\w.]*(,<\d[\d.]*)?|==\d[\w.]*)")
FILES = [*sorted(ROOT.glob("*requirements.txt")), *sorted(ROOT.glob("*/**/requirements.txt"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_dependency_has_a_lower_bound(path: Path) -> None:
    """That the code works with them is tested by tox's "lower-bounds", that they have no known weakness by "audit"."""
    assert [line for line in lines(path) if not REQUIREMENT.fullmatch(line)] == []


def test_dependencies() -> None:
    """Each has its reason right above it; what tests name again has the same bound; heavier clouds are extras."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [number for number, line in enumerate(text) if REQUIREMENT.fullmatch(line.strip())]
    assert len(wanted) >= 4
    assert [text[number] for number in wanted if not text[number - 1].lstrip().startswith("#")] == []
    bounds = {line.partition(">=")[0]: line for line in lines(ROOT / "requirements.txt")}
    used = {line.partition(">=")[0]: line for line in lines(ROOT / "test-requirements.txt")}
    assert [line for name, line in used.items() if bounds.get(name, line) != line] == []
    # What the default driver and image builds need comes with the package, as in Nodepool 11; the extra's name stays.
    assert set(bounds) >= {"openstacksdk", "diskimage-builder", "keystoneauth1", "requests", "urllib3"}
    assert not set(bounds) & {"boto3", "kubernetes", "openshift"}
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert config["options.extras_require"]["openstack"].split() == []


def test_name_of_the_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in one place, for who publishes under another one (how-to/install)."""
    made: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=made.update))
    (tmp_path / "nodepool").mkdir()
    shutil.copy(ROOT / "setup.py", tmp_path)
    text = (ROOT / "nodepool" / "version.py").read_text(encoding="utf-8")
    (tmp_path / "nodepool" / "version.py").write_text(text.replace('"nodepool"', '"site-nodepool"'), encoding="utf-8")
    for directory, name in ((ROOT, "nodepool"), (tmp_path, "site-nodepool")):
        runpy.run_path(str(directory / "setup.py"))
        assert made.pop("name") == name
