# SPDX-License-Identifier: Apache-2.0
"""Each image is run: its programs, the configuration, a launcher that serves, web pages, a builder with sudo."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.functional.containers.buildah import ROOT, Buildah, Container
from tests.functional.containers.conftest import IMAGES, REGISTRY, USER
from tests.support.pool_znodes import PoolZnodes
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

#: The first test of all waits for the images.
pytestmark = pytest.mark.timeout(3600)

#: That builds call.
PROGRAMS: Final = (
    "debootstrap kpartx qemu-img mkfs.ext4 mkfs.vfat sgdisk parted dnf zypper podman git disk-image-create"
)
#: Prints the packages of all extras; fails if one is missing.
EXTRAS: Final = """
import re
from importlib import metadata
from nodepool.version import DISTRIBUTION
for line in metadata.requires(DISTRIBUTION):
    if "extra ==" in line:
        name = re.match(r"[A-Za-z0-9._-]+", line)[0]
        metadata.version(name)
        print(name)
"""
#: A daemon on a busy machine; seconds.
PATIENCE: Final = 120.0


@contextmanager
def started(container: Container, image: str, images: Buildah, log: Path) -> Iterator[ChildProcess]:
    """The daemon of an image, as the image starts it."""
    daemon = container.daemon(images.settings(image)["Cmd"], log)
    try:
        yield daemon
        assert daemon.running, daemon.log_text()
    finally:
        daemon.stop(seconds=PATIENCE)
    assert "Traceback" not in daemon.log_text()


def healthy(container: Container, image: str) -> bool:
    """What the health check of the compose file says."""
    compose = yaml.safe_load((ROOT / "etc" / "compose.yaml").read_text(encoding="utf-8"))
    kind, *command = compose["services"][image.removeprefix("nodepool-")]["healthcheck"]["test"]
    assert kind == "CMD"
    return container(*command).status == 0


def test_release(images: Buildah) -> None:
    """The digests are the archives'; compose file and manifests have them; the lists name what is in the images."""
    dist = images.directory / "dist"
    named = dict(line.split("@") for line in (dist / "images.txt").read_text(encoding="ascii").splitlines())
    assert set(named) == {f"{REGISTRY}/{image}" for image in IMAGES}
    compose = yaml.safe_load((dist / "compose.yaml").read_text(encoding="utf-8"))["services"]
    manifests = yaml.safe_load((dist / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
    for image in IMAGES:
        digest = named[f"{REGISTRY}/{image}"]
        with tarfile.open(dist / f"{image}.oci.tar") as archive:
            manifest = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert manifest is not None
            assert json.load(manifest)["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
        listed = json.loads((dist / f"{image}.oci.tar.cdx.json").read_text(encoding="utf-8"))["components"]
        names = {component["purl"].partition("@")[0] for component in listed}
        assert {"pkg:pypi/nodepool", "pkg:pypi/openstacksdk", "pkg:deb/debian/libc6"} <= names
        assert ("pkg:deb/debian/debootstrap" in names) == (image == "nodepool-builder")
        if image != "nodepool":
            service = compose[image.removeprefix("nodepool-")]
            assert (service["image"], "build" in service) == (f"{REGISTRY}/{image}@{digest}", False)
            used = {"name": image, "newName": f"{REGISTRY}/{image}", "digest": digest}
            assert used in manifests["images"]


@pytest.mark.parametrize("image", IMAGES)
def test_programs(images: Buildah, image: str, volumes: dict[Path, str]) -> None:
    """No entry point; the released paths; nothing that only builds need."""
    settings = images.settings(image)
    assert not settings.get("Entrypoint")
    assert settings["User"] == f"{USER}:{USER}"
    with images.container(image, volumes) as container:
        for program in ("nodepool", "nodepool-launcher", "nodepool-builder", "nodepool-web"):
            assert container.output(f"/usr/local/bin/{program}", "--help").startswith(f"usage: {program}")
        assert container("nodepool", "config-validate").status == 0
        assert container.output("sh", "-c", "command -v gcc || command -v pip || echo neither") == "neither\n"
        assert container.output("sh", "-c", "test -r /etc/nodepool/client.key && id -u") == f"{USER}\n"


@pytest.mark.parametrize("image", IMAGES)
def test_extras(images: Buildah, image: str) -> None:
    """What each extra of the package names is installed: every driver can be configured."""
    with images.container(image) as container:
        found = container.output("/usr/local/lib/nodepool/bin/python", "-c", EXTRAS).split()
    assert {"botocore", "kubernetes", "opentelemetry-sdk", "Authlib"} <= set(found)


def test_launcher_serves(images: Buildah, volumes: dict[Path, str], znodes: PoolZnodes, tmp_path: Path) -> None:
    with (
        images.container("nodepool-launcher", volumes) as container,
        started(container, "nodepool-launcher", images, tmp_path / "launcher.log"),
    ):
        wait_for("it is healthy", lambda: healthy(container, "nodepool-launcher"), PATIENCE)
        znodes.served(znodes.submit(["small"]), PATIENCE)
        with images.container("nodepool", volumes) as command_line:
            assert "127.1.0.1" in command_line.output("nodepool", "list")


def test_web(images: Buildah, volumes: dict[Path, str], znodes: PoolZnodes, tmp_path: Path) -> None:
    with (
        images.container("nodepool-web", volumes) as container,
        started(container, "nodepool-web", images, tmp_path / "web.log"),
    ):
        wait_for("it is healthy", lambda: healthy(container, "nodepool-web"), PATIENCE)


def test_builder(images: Buildah, volumes: dict[Path, str], znodes: PoolZnodes, tmp_path: Path) -> None:
    """Builds become root, and have the programs of diskimage-builder."""
    with images.container("nodepool-builder", volumes) as container:
        assert container.output("sudo", "-n", "id", "-u") == "0\n"
        look = f"for one in {PROGRAMS}; do command -v $one >/dev/null || echo $one; done"
        assert container.output("sudo", "-n", "sh", "-c", look) == ""
        with started(container, "nodepool-builder", images, tmp_path / "builder.log"):
            wait_for("it is healthy", lambda: healthy(container, "nodepool-builder"), PATIENCE)
