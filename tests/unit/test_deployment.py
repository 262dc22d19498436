# SPDX-License-Identifier: Apache-2.0
"""What runs Nodepool in containers: Dockerfile, etc/compose.yaml, etc/kubernetes; and that no key gets out with it."""

from __future__ import annotations

import fnmatch
import re
import shlex
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from nodepool.cmd import builder, cli, launcher, tls, web
from nodepool.config.loader import load_config
from nodepool.config.validator import validate

ROOT: Final = Path(__file__).parents[2]
KUBERNETES: Final = ROOT / "etc" / "kubernetes"
#: The oldest and the newest release that the manifests are checked for.
RELEASES: Final = ("1.25", "1.37")
#: User and group of the images.
USER: Final = 10001
PARSERS: Final = {
    "nodepool": cli.make_parser,
    "nodepool-launcher": launcher.make_parser,
    "nodepool-builder": builder.make_parser,
    "nodepool-web": web.make_parser,
    "nodepool-tls": tls.make_parser,
}
#: Where somebody may put keys.
SECRETS: Final = ("etc/kubernetes/tls/zk-client.key", "etc/tls/server.pem", "etc/client.p12", "etc/ca.key")


def manifests() -> dict[str, dict[str, Any]]:
    """What the files of the kustomization have, by kind and name."""
    found: dict[str, dict[str, Any]] = {}
    for name in kustomization()["resources"]:
        for data in yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")):
            found[f"{data['kind']}/{data['metadata']['name']}"] = data
    return found


def kustomization() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))
    return data


def pods() -> dict[str, dict[str, Any]]:
    """The pod of each workload by its name."""
    kinds = ("Deployment", "StatefulSet")
    return {
        data["metadata"]["name"]: data["spec"]["template"]["spec"]
        for data in manifests().values()
        if data["kind"] in kinds
    }


def compose() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / "etc" / "compose.yaml").read_text(encoding="utf-8"))
    return data


def parses(command: list[str]) -> bool:
    """Is it a command line of ours?"""
    PARSERS[command[0]]().parse_args(command[1:])
    return True


class TestDockerfile:
    TEXT: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")

    def test_commands_are_free(self) -> None:
        """What stands behind the name of an image is a whole command, as with the released images."""
        assert not re.search(r"^ENTRYPOINT", self.TEXT, re.MULTILINE)
        assert set(re.findall(r"^USER (\S+)$", self.TEXT, re.MULTILINE)) == {f"{USER}:{USER}", "0:0"}

    def test_health_checks_and_commands(self) -> None:
        for text in re.findall(r"CMD (\[.*\])$", self.TEXT, re.MULTILINE):
            command = yaml.safe_load(text)
            if command[0] == "/bin/sh":
                command = [word for word in shlex.split(command[2])[1:] if not word.startswith("$")]
            assert parses(command) if command[-1] != "--help" else command[0] in PARSERS


class TestCompose:
    def test_services(self) -> None:
        services = compose()["services"]
        assert set(services) == {"zookeeper", "launcher", "web", "builder"}
        for name, service in services.items():
            assert not service["image"].endswith(":latest")
            assert ":" in service["image"]
            if name != "zookeeper":
                assert f"FROM base AS {service['build']['target']}\n" in TestDockerfile.TEXT
                assert parses(service["command"])
                assert service["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}

    def test_names_are_declared(self) -> None:
        data = compose()
        volumes = {volume.partition(":")[0] for service in data["services"].values() for volume in service["volumes"]}
        assert {name for name in volumes if not name.startswith("/")} == set(data["volumes"])
        assert data["services"]["zookeeper"]["configs"][0]["source"] in data["configs"]

    def test_tls_only(self) -> None:
        settings = compose()["configs"]["zoo.cfg"]["content"].splitlines()
        assert "ssl.clientAuth=need" in settings
        assert not any(line.startswith("clientPort") for line in settings)


class TestKubernetes:
    @pytest.mark.parametrize("release", RELEASES)
    @pytest.mark.parametrize("name", manifests())
    def test_schemas(self, name: str, release: str) -> None:
        kubernetes_validate.validate(manifests()[name], release, strict=True)

    def test_configuration(self) -> None:
        path = str(KUBERNETES / "nodepool.yaml")
        assert validate(path) == []
        assert load_config(path, strict=True).images_dir == "/opt/nodepool/images"

    def test_images(self) -> None:
        """Each has a tag that stays, and is a target of the Dockerfile."""
        tags = {image["name"]: image["newTag"] for image in kustomization()["images"]}
        for pod in pods().values():
            for container in pod["containers"]:
                assert re.fullmatch(r"\d+\.\d+\.\d+", tags[container["image"]])
                assert f"FROM base AS {container['image']}\n" in TestDockerfile.TEXT
                assert parses(container["command"])

    def test_generated(self) -> None:
        """Each ConfigMap and Secret of a volume is generated."""
        generated = {item["name"] for kind in ("configMap", "secret") for item in kustomization()[f"{kind}Generator"]}
        used = set(
            re.findall(r"(?:secretName|name): (nodepool-(?:config|zookeeper|clouds))", str(pods()).replace("'", ""))
        )
        assert used == generated

    @pytest.mark.parametrize("name", pods())
    def test_pods(self, name: str) -> None:
        pod = pods()[name]
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
        assert pod["automountServiceAccountToken"] is False
        assert "podAntiAffinity" in pod["affinity"]
        (container,) = pod["containers"]
        assert "readinessProbe" in container
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert mounts - volumes == ({"images"} if name == "nodepool-builder" else set())
        assert volumes <= mounts

    def test_launchers_finish_their_launches(self) -> None:
        pod = pods()["nodepool-launcher"]
        assert "--drain" in pod["containers"][0]["command"]
        assert pod["terminationGracePeriodSeconds"] > 600
        assert "preStop" in pod["containers"][0]["lifecycle"]

    def test_services_find_their_pods(self) -> None:
        for data in manifests().values():
            if data["kind"] == "Service":
                assert data["spec"]["selector"] == {"app.kubernetes.io/name": data["metadata"]["name"]}


class TestKeys:
    """Keys that somebody made beside the files do not get into commits, images and packages."""

    @pytest.mark.parametrize("path", SECRETS)
    def test_ignored(self, path: str) -> None:
        for name in (".gitignore", ".dockerignore"):
            lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
            patterns = [line.lstrip("/").rstrip("/") for line in lines if line and not line.startswith("#")]
            assert any(ignores(pattern, path) for pattern in patterns), name

    @pytest.mark.parametrize("path", SECRETS)
    def test_not_packed(self, path: str) -> None:
        lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
        pruned = [line.split()[1] for line in lines if line.startswith("prune ")]
        excluded = [
            words[2:] for line in lines if (words := line.split())[0] == "recursive-exclude" and words[1] == "etc"
        ]
        by_name = any(fnmatch.fnmatch(Path(path).name, pattern) for patterns in excluded for pattern in patterns)
        assert by_name or any(path.startswith(f"{directory}/") for directory in pruned)


def ignores(pattern: str, path: str) -> bool:
    """As git and docker do, for the patterns that we have: ``**/`` stands for any directories, also for none."""
    parts = Path(path)
    for candidate in (parts, *parts.parents):
        for each in (pattern, pattern.replace("**/", "")):
            if fnmatch.fnmatch(str(candidate), each):
                return True
    return False
