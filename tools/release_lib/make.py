# SPDX-License-Identifier: Apache-2.0
"""Makes the files of a release, each with a list of what is in it; see tools/release.

    python make.py WORK DIST [OPTIONS OF tools/release]

``WORK/source`` is the tree of the commit. Nothing of this machine, and no time but ``SOURCE_DATE_EPOCH``, gets into a
file.
"""

from __future__ import annotations

import argparse
import configparser
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

#: Of Debian 12 and 13. A virtual environment has a directory for each; Python takes its own.
PYTHONS: Final = ("3.11", "3.13")
#: Debian's name of an architecture -> that of wheels.
ARCHITECTURES: Final = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
PLACE: Final = "opt/nodepool"
UNITS: Final = ("nodepool-launcher", "nodepool-builder", "nodepool-web")
PROGRAMS: Final = (*UNITS, "nodepool", "nodepool-tls")
#: Where each shell looks.
COMPLETION: Final = {
    "bash": "usr/share/bash-completion/completions/nodepool",
    "zsh": "usr/share/zsh/vendor-completions/_nodepool",
    "fish": "usr/share/fish/vendor_completions.d/nodepool.fish",
}
#: Of the images.
IMAGE_PYTHON: Final = "/usr/local/lib/nodepool/bin/python"
DISTRIBUTIONS: Final = (
    "import json; from importlib.metadata import distributions as all; "
    "print(json.dumps([(one.metadata['Name'].lower(), one.version) for one in all()]))"
)
DPKG_LINE: Final = r"${db:Status-Status} ${Package} ${Version} ${Architecture}\n"
BIN: Final = Path(sys.executable).parent
EPOCH: Final = int(os.environ["SOURCE_DATE_EPOCH"])


def run(*command: str | Path, **environment: str) -> str:
    """What a program prints. Raises CalledProcessError."""
    # In a file: buildah loses the last lines of a container's output in a pipe now and then.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        subprocess.run(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=output, check=True)
        output.seek(0)
        return output.read()


def tidy(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime, member.pax_headers = EPOCH, {}
    return member


def sources(source: Path, dist: Path) -> tuple[Path, Path]:
    """Make the wheel and the source distribution."""
    run(BIN / "uv", "build", "--quiet", "--python", sys.executable, "--out-dir", dist, source)
    (wheel,), (made,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    (dist / ".gitignore").unlink(missing_ok=True)
    # setuptools packs it with the times of now.
    with tarfile.open(made) as archive:
        members = [(member, archive.extractfile(member)) for member in sorted(archive, key=lambda one: one.name)]
        with (
            gzip.GzipFile(made.with_suffix(".new"), "wb", mtime=EPOCH) as packed,
            tarfile.open(mode="w", fileobj=packed) as new,
        ):
            for member, content in members:
                new.addfile(tidy(member), content)
    made.with_suffix(".new").replace(made)
    return wheel, made


def virtual_environment(wheel: Path, root: Path, platform: str, source: Path) -> list[Path]:
    """Make one that works in ``/opt/nodepool`` with each Python. Returns the directories of packages."""
    settings = configparser.ConfigParser()
    settings.read(source / "setup.cfg")
    # All clouds; not what a developer may want.
    extras = ",".join(name for name in settings["options.extras_require"] if name != "nodepool_base").replace("_", "-")
    place = root / PLACE
    packages = []
    for version in PYTHONS:
        target = place / "lib" / f"python{version}" / "site-packages"
        wanted = ("--python-version", version, "--python-platform", platform, "--target", str(target))
        run(BIN / "uv", "pip", "install", "--quiet", "--link-mode", "copy", *wanted, f"{wheel}[{extras}]")
        for name in ("bin", "share"):
            if version == PYTHONS[0] and (target / name).exists():
                shutil.copytree(target / name, place / name)
            shutil.rmtree(target / name, ignore_errors=True)
        for info in target.glob("*.dist-info"):
            forget_origin(info)
        (target / ".lock").unlink(missing_ok=True)
        packages.append(target)
    for program in (place / "bin").iterdir():
        text = program.read_bytes()
        if text.startswith(b"#!") and b"python" in text.partition(b"\n")[0]:
            program.write_bytes(f"#!/{PLACE}/bin/python\n".encode() + text.partition(b"\n")[2])
        program.chmod(0o755)
    (place / "bin" / "python").symlink_to("/usr/bin/python3")
    (place / "bin" / "python3").symlink_to("python")
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", encoding="ascii")
    return packages


def forget_origin(info: Path) -> None:
    """Take away what the installer notes of this machine."""
    noted = ("direct_url.json", "uv_cache.json", "REQUESTED")
    for name in noted:
        (info / name).unlink(missing_ok=True)
    record = info / "RECORD"
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [
        line for line in lines if not line.partition(",")[0].endswith(noted) and "/bin/" not in line.partition(",")[0]
    ]
    record.write_text("".join(sorted(kept)), encoding="utf-8")


def files_beside(source: Path, root: Path) -> None:
    """Units, configuration, users, man pages and completion."""
    etc, packaging = source / "etc", source / "packaging" / "debian"
    placed = {
        "usr/lib/sysusers.d/nodepool.conf": packaging / "sysusers.conf",
        "usr/lib/tmpfiles.d/nodepool.conf": packaging / "tmpfiles.conf",
        "etc/nodepool/nodepool.yaml": etc / "nodepool-first.yaml",
        "usr/share/doc/nodepool/copyright": source / "LICENSE",
        "usr/share/doc/nodepool/examples/nodepool.yaml": etc / "nodepool.yaml",
        "usr/share/doc/nodepool/examples/logging.yaml": etc / "logging.yaml",
        **{f"usr/lib/systemd/system/{unit}.service": etc / f"{unit}.service" for unit in UNITS},
    }
    for place, file in placed.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, root / place)
    pages = root / "usr" / "share" / "man" / "man1"
    only = ("-D", "root_doc=reference/man/index", "-D", "include_patterns=reference/man/**")
    doctrees = ("-d", root.parent / "doctrees")
    run(
        BIN / "python",
        "-m",
        "sphinx",
        "-q",
        "-b",
        "man",
        *doctrees,
        *only,
        source / "doc" / "source",
        pages,
        PYTHONPATH=str(source),
    )
    shutil.rmtree(pages / "static", ignore_errors=True)
    for page in [*pages.glob("*.1")]:
        page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
    for shell, place in COMPLETION.items():
        text = run(BIN / "python", "-m", "nodepool.cmd.cli", "completion", shell, PYTHONPATH=str(source))
        (root / place).parent.mkdir(parents=True)
        (root / place).write_text(text, encoding="utf-8")
    for program in PROGRAMS:
        (root / "usr" / "bin").mkdir(exist_ok=True)
        (root / "usr" / "bin" / program).symlink_to(f"/{PLACE}/bin/{program}")


def debian_package(source: Path, root: Path, dist: Path, version: str, architecture: str) -> Path:
    """Pack a tree."""
    control = root / "DEBIAN"
    control.mkdir()
    for script in ("preinst", "postinst", "prerm", "postrm", "conffiles"):
        shutil.copyfile(source / "packaging" / "debian" / script, control / script)
        (control / script).chmod(0o644 if script == "conffiles" else 0o755)
    files = [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and control not in path.parents
    ]
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
    ]
    (control / "md5sums").write_text("".join(sums), encoding="utf-8")
    major, minor = map(int, PYTHONS[-1].split("."))
    values = {
        "@VERSION@": version.replace(".dev", "~dev"),
        "@ARCHITECTURE@": architecture,
        "@SIZE@": str(sum(path.stat().st_size for path in files) // 1024),
        "@NEXT_PYTHON@": f"{major}.{minor + 1}",
    }
    text = (source / "packaging" / "debian" / "control").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(name, value)
    (control / "control").write_text(text, encoding="utf-8")
    for directory in (root, *(path for path in root.rglob("*") if path.is_dir())):
        directory.chmod(0o755)
    made = dist / f"nodepool_{values['@VERSION@']}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zzstd", "--build", root, made)
    return made


def python_packages(place: Path) -> Iterator[PackageURL]:
    """Those in a directory."""
    for found in distributions(path=[str(place)]):
        yield PackageURL("pypi", name=found.metadata["Name"].lower(), version=found.version)


def contents(packages: Iterable[PackageURL], file: Path, version: str) -> None:
    """Write what is in a file as CycloneDX, beside it."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, digest))
    bom.metadata = BomMetaData(
        timestamp=datetime.fromtimestamp(EPOCH, UTC),
        component=Component(name=file.name, version=version, type=ComponentType.APPLICATION, bom_ref="release"),
    )
    for purl in sorted(set(packages)):
        bom.components.add(Component(name=purl.name, version=purl.version, purl=purl, bom_ref=purl.to_string()))
    bom.register_dependency(bom.metadata.component, bom.components)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    file.with_name(f"{file.name}.cdx.json").write_text(f"{text}\n", encoding="utf-8")


class Images:
    """The images of the Dockerfile, built by buildah in a storage of its own.

    :param work: for the storage; some gigabytes.
    :param volumes: SOURCE:PLACE, what commands of a build need of this machine.
    """

    def __init__(self, work: Path, volumes: Sequence[str]) -> None:
        self._storage = work / "images"
        self._source = work / "source"
        self._volumes = [f"--volume={volume}:ro" for volume in volumes]
        places = ("--root", str(self._storage / "root"), "--runroot", str(self._storage / "run"))
        # Layers of another driver have another order. vfs works where no file system can be mounted.
        driver = os.environ.get("STORAGE_DRIVER", "overlay")
        self._buildah = ("buildah", *places, "--storage-driver", driver)

    def __call__(self, *arguments: str | Path) -> str:
        """What a command of buildah prints. Raises CalledProcessError."""
        return run(*self._buildah, *arguments).strip()

    def base(self, base: str) -> None:
        """Fetch the image below all others. :param base: its name, or a directory with a Debian."""
        if Path(base).is_dir():
            container = self("from", "scratch")
            self("copy", "--quiet", container, base, "/")
            image = self("commit", "--quiet", "--rm", "--timestamp", str(EPOCH), container)
        else:
            image = self("pull", "--quiet", base)
        self("tag", image, "localhost/debian")

    def build(self, dockerfile: str, target: str) -> None:
        """Build a target of a Dockerfile's text."""
        file = self._storage / f"Dockerfile.{target}"
        file.write_text(dockerfile, encoding="utf-8")
        values = ("--build-arg", "BASE=localhost/debian", "--build-arg", f"SOURCE_DATE_EPOCH={EPOCH}")
        options = ("--quiet", "--pull-never", "--timestamp", str(EPOCH), *self._volumes)
        named = ("--file", file, "--target", target, "--tag", f"localhost/{target}")
        self("build", *options, *values, *named, self._source)

    def packages(self, target: str) -> Iterator[PackageURL]:
        """What is in it, by its own programs."""
        container = self("from", "--pull-never", f"localhost/{target}")
        listed = self("run", container, "--", "dpkg-query", "--show", f"--showformat={DPKG_LINE}")
        for line in listed.splitlines():
            status, name, version, architecture = line.split()
            if status == "installed":
                yield PackageURL("deb", "debian", name, version, {"arch": architecture})
        for python in (IMAGE_PYTHON, "python3"):
            for name, version in json.loads(self("run", container, "--", python, "-c", DISTRIBUTIONS)):
                yield PackageURL("pypi", name=name, version=version)
        self("rm", container)

    def archive(self, target: str, version: str, file: Path) -> str:
        """Write it as an OCI archive. Returns its digest, ``sha256:...``."""
        layout = self._storage / target
        self("push", "--quiet", f"localhost/{target}", f"oci:{layout}:{target}:{version}")
        with tarfile.open(file, "w") as packed:
            for path in sorted(layout.rglob("*")):
                packed.add(path, str(path.relative_to(layout)), recursive=False, filter=tidy)
        (manifest,) = json.loads((layout / "index.json").read_text(encoding="utf-8"))["manifests"]
        shutil.rmtree(layout)
        return str(manifest["digest"])


def images(work: Path, dist: Path, version: str, options: argparse.Namespace) -> None:
    """Make all images, and the files that use them by digest."""
    build = Images(work, options.volume)
    print(f"Fetching the image {options.base}", flush=True)
    (work / "images").mkdir()
    build.base(options.base)
    dockerfile = (work / "source" / "Dockerfile").read_text(encoding="utf-8")
    # buildah makes all stages above a target again: the first ones are made once.
    build.build(dockerfile, "base")
    head = dockerfile.partition("\nFROM ")[0]
    stages = re.findall(r"^FROM base AS (\S+)\n(.*?)(?=^FROM |\Z)", dockerfile, re.MULTILINE | re.DOTALL)
    digests = {}
    for target, text in stages:
        print(f"Building the image {target}", flush=True)
        # The format of OCI has no health check.
        text = re.sub("^HEALTHCHECK .*\n", "", text, flags=re.MULTILINE)
        build.build(f"{head}\nFROM localhost/base AS {target}\n{text}", target)
        file = dist / f"{target}.oci.tar"
        digests[target] = build.archive(target, version, file)
        contents(build.packages(target), file, version)
    lines = [f"{options.registry}/{target}@{digest}\n" for target, digest in sorted(digests.items())]
    (dist / "images.txt").write_text("".join(lines), encoding="ascii")
    by_digest(work / "source" / "etc", dist, options.registry, digests)


def by_digest(etc: Path, dist: Path, registry: str, digests: dict[str, str]) -> None:
    """Write the compose file and the manifests with the images of this release."""
    compose = (etc / "compose.yaml").read_text(encoding="utf-8")
    compose = compose.replace("--file etc/compose.yaml up --detach --build", "--file compose.yaml up --detach")
    shutil.copytree(etc / "kubernetes", dist / "kubernetes")
    kustomization = dist / "kubernetes" / "kustomization.yaml"
    kubernetes = kustomization.read_text(encoding="utf-8").replace("--kustomize etc/", "--kustomize ")
    for target, digest in digests.items():
        built = rf"image: {target}:\S+\n +build: .*"
        compose = re.sub(built, f"image: {registry}/{target}@{digest}", compose)
        tagged = rf"newName: \S+/{target}\n( +)newTag: \S+"
        kubernetes = re.sub(tagged, rf"newName: {registry}/{target}\n\1digest: {digest}", kubernetes)
    (dist / "compose.yaml").write_text(compose, encoding="utf-8")
    kustomization.write_text(kubernetes, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--no-images", action="store_true")
    parser.add_argument("--only-images", action="store_true")
    parser.add_argument("--base")
    parser.add_argument("--registry", default="registry.example.com")
    parser.add_argument("--volume", action="append", default=[])
    options = parser.parse_args()
    work, dist = options.work, options.dist
    source = work / "source"
    settings = configparser.ConfigParser()
    settings.read(source / "setup.cfg")
    version = settings["metadata"]["version"]
    if not options.only_images:
        wheel, archive = sources(source, dist)
        architecture = run("dpkg", "--print-architecture").strip()
        places = virtual_environment(wheel, work / "debian", ARCHITECTURES[architecture], source)
        files_beside(source, work / "debian")
        package = debian_package(source, work / "debian", dist, version, architecture)
        for file in (wheel, archive, package):
            contents(python_packages(places[0]), file, version)
    if not options.no_images:
        images(work, dist, version, options)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        # It has printed why.
        sys.exit(f"release: this command failed: {shlex.join(map(str, error.cmd))}")
