# SPDX-License-Identifier: Apache-2.0
"""Command line and environment of a build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import nodepool
from nodepool.builder import build
from nodepool.builder.build import (
    BuildJob,
    command_line,
    conversion_commands,
    environment,
    make_job,
    temporary_directory,
)
from nodepool.config.objects import DiskImage
from nodepool.driver.config import ImageConversion

OUTPUT = Path("/images/debian-0123")
VHD = ImageConversion("raw", "vpc", "subformat=fixed", 1000)


def job(**fields: object) -> BuildJob:
    return BuildJob(**{"image": "debian", "build_id": "0123", "formats": ["qcow2"], "output": OUTPUT, **fields})  # type: ignore[arg-type]


def test_command_line() -> None:
    """B-5: one build makes all formats; qcow2 is compatible with old versions."""
    words = command_line(job(formats=["qcow2", "raw"], command="/usr/bin/dib", elements=["debian-minimal", "vm"]))
    assert words == [
        *("/usr/bin/dib", "-x", "-t", "qcow2,raw", "--checksum", "--no-tmpfs", "--qemu-img-options", "compat=0.10"),
        *("-o", "/images/debian-0123", "debian-minimal", "vm"),
    ]


def test_command_line_without_qcow2() -> None:
    """B-5"""
    words = command_line(job(formats=["raw", "vhd"], command="dib"))
    assert words == ["dib", "-x", "-t", "raw,vhd", "--checksum", "--no-tmpfs", "-o", "/images/debian-0123"]


def test_split_as_a_shell_would() -> None:
    """B-15: arguments in dib-cmd and in elements, with quotes; nothing is expanded."""
    words = command_line(job(command="env 'A=b c' dib $HOME", elements=["vm -p 'a b'"]))
    assert words[:4] == ["env", "A=b c", "dib", "$HOME"]
    assert words[-3:] == ["vm", "-p", "a b"]


def test_blanks_in_a_path_split_nothing() -> None:
    """B-15"""
    assert "/my images/debian-0123" in command_line(job(output=Path("/my images/debian-0123")))


def test_package_directory() -> None:
    """%p in dib-cmd is the directory of this package."""
    (top,) = nodepool.__path__
    assert command_line(job(command="%p/tests/build --fast"))[:2] == [f"{top}/tests/build", "--fast"]


@pytest.mark.parametrize("command", ["'dib", "", "  "])
def test_command_that_makes_no_sense(command: str) -> None:
    """B-14: it cannot be started."""
    with pytest.raises(ValueError):
        command_line(job(command=command))


def test_beside_python_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-15: the command of a virtual environment that is not on PATH; only if it is not there the one on PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert command_line(job())[0] == "disk-image-create"
    found = tmp_path / "disk-image-create"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    assert command_line(job())[0] == str(found)
    assert command_line(job(command="my-build"))[0] == "my-build"


def test_environment() -> None:
    """B-6: that of the process, then what diskimage-builder is to know, then env-vars."""
    made = environment(
        job(release="bookworm", elements_dir="/elements", variables={"A": "job", "DIB_RELEASE": "trixie"}),
        {"A": "process", "PATH": "/bin", "NOTIFY_SOCKET": "/run/systemd", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "2"},
        Path("/tmp/work"),
    )
    assert made == {
        "A": "job",
        "PATH": "/bin",
        "DIB_RELEASE": "trixie",
        "DIB_IMAGE_NAME": "debian",
        "DIB_IMAGE_FILENAME": "/images/debian-0123",
        "ELEMENTS_PATH": "/elements",
        "TMPDIR": "/tmp/work",
        "TMP_DIR": "/tmp/work",
    }


def test_elements_path_of_the_process_stays() -> None:
    """B-6: without elements-dir."""
    made = environment(job(), {"ELEMENTS_PATH": "/mine"}, Path("/tmp/work"))
    assert (made["ELEMENTS_PATH"], made["DIB_RELEASE"]) == ("/mine", "")


@pytest.mark.parametrize(
    ("variables", "base", "expected"),
    [
        ({}, {}, "/tmp"),
        ({}, {"TMP_DIR": "/big"}, "/big"),
        ({}, {"TMP_DIR": "/big", "TMPDIR": "/bigger"}, "/bigger"),
        ({"TMP_DIR": "/mine"}, {"TMPDIR": "/bigger"}, "/mine"),
        ({"TMPDIR": ""}, {"TMPDIR": ""}, "/tmp"),
    ],
)
def test_temporary_directory(variables: dict[str, str], base: dict[str, str], expected: str) -> None:
    """Where diskimage-builder would have put its files: env-vars decide before the process."""
    assert temporary_directory(job(variables=variables), base) == Path(expected)


def test_job_of_the_configuration() -> None:
    image = DiskImage("debian")
    image.release, image.elements, image.env_vars, image.build_timeout = "12", ["vm"], {"A": "b"}, 60
    made = make_job(image, "0123", {"raw", "qcow2"}, OUTPUT, "/elements", {"vhd": VHD})
    assert made == job(
        formats=["qcow2", "raw"],
        release="12",
        elements=("vm",),
        elements_dir="/elements",
        variables={"A": "b"},
        timeout=60,
    )
    assert made.name == "debian-0123"
    assert made.command == build.COMMAND


@pytest.mark.parametrize(
    ("formats", "made"), [({"vhd"}, ["raw"]), ({"vhd", "qcow2"}, ["qcow2", "raw"]), ({"vhd", "raw"}, ["raw"])]
)
def test_job_with_a_conversion(formats: set[str], made: list[str]) -> None:
    """B-18: diskimage-builder makes what the other format is made of."""
    found = make_job(DiskImage("debian"), "0123", formats, OUTPUT, None, {"vhd": VHD})
    assert (found.formats, found.conversions) == (made, {"vhd": VHD})


def test_conversion_commands() -> None:
    """B-18: the disk is rounded up."""
    create, convert = conversion_commands(VHD, Path("/i.raw"), Path("/i.vhd"), 2001)
    assert create == ["qemu-img", "create", "-q", "-f", "vpc", "-o", "subformat=fixed", "/i.vhd", "3000"]
    into = ["-n", "--target-is-zero", "-f", "raw", "-O", "vpc"]
    assert convert == ["qemu-img", "convert", *into, "/i.raw", "/i.vhd"]
    assert conversion_commands(VHD, Path("/i.raw"), Path("/i.vhd"), 2000)[0][-1] == "2000"
