# SPDX-License-Identifier: Apache-2.0
"""Makes source, wheel and Debian package of a release, each with a list of what is in it; see tools/release.

    python make.py WORK DIST

``WORK/source`` is the tree of the commit. Nothing of this machine, and no time but ``SOURCE_DATE_EPOCH``, gets into a file.
"""

from __future__ import annotations

import configparser
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
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
BIN: Final = Path(sys.executable).parent
EPOCH: Final = int(os.environ["SOURCE_DATE_EPOCH"])


def run(*command: str | Path, **environment: str) -> str:
    """What a program prints. Raises CalledProcessError."""
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


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
                member.uid = member.gid = 0
                member.uname = member.gname = "root"
                member.mtime, member.pax_headers = EPOCH, {}
                new.addfile(member, content)
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


def contents(found: Iterator[Distribution], file: Path, version: str) -> None:
    """Write what is in a file as CycloneDX, beside it."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, digest))
    bom.metadata = BomMetaData(
        timestamp=datetime.fromtimestamp(EPOCH, UTC),
        component=Component(name=file.name, version=version, type=ComponentType.APPLICATION, bom_ref="release"),
    )
    for name, release in sorted({(one.metadata["Name"].lower(), one.version) for one in found}):
        purl = PackageURL("pypi", name=name, version=release)
        bom.components.add(Component(name=name, version=release, purl=purl, bom_ref=purl.to_string()))
    bom.register_dependency(bom.metadata.component, bom.components)
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    file.with_name(f"{file.name}.cdx.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    work, dist = map(Path, sys.argv[1:])
    source, root = work / "source", work / "debian"
    wheel, archive = sources(source, dist)
    version = wheel.name.split("-")[1]
    architecture = run("dpkg", "--print-architecture").strip()
    packages = virtual_environment(wheel, root, ARCHITECTURES[architecture], source)
    files_beside(source, root)
    package = debian_package(source, root, dist, version, architecture)
    for file in (wheel, archive, package):
        contents(distributions(path=[str(packages[0])]), file, version)


if __name__ == "__main__":
    main()
