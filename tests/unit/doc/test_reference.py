# SPDX-License-Identifier: Apache-2.0
"""The reference is whole: keys of configurations, programs, release notes, pages of drivers, recipes of images."""

from __future__ import annotations

import argparse
import configparser
import re
from pathlib import Path
from typing import Any, Final

import diskimage_builder  # type: ignore[import-untyped]
import pytest
import yaml
from diskimage_builder.element_dependencies import (  # type: ignore[import-untyped]
    MissingElementException,
    get_elements,
)

from doc.source.extensions import code_tables, command_line, config_keys, listing_columns, metrics, release_notes
from nodepool.driver.gateway import HOOKS
from nodepool.driver.registry import KNOWN, Drivers
from nodepool.metrics.catalog import ALL
from nodepool.model.config_keys import Sections, keys_of
from nodepool.plan.triage import MOVES
from tests.support.tables import rows
from tests.unit.test_samples import ROOT, SOURCE, yaml_blocks

KEYS: Final = SOURCE / "reference" / "configuration-file.rst"
MAN: Final = SOURCE / "reference" / "man"
#: Drivers whose keys are in the reference of the file alone.
WITHOUT_PAGES: Final = ("fake",)


def sections(top: type) -> set[type]:
    """A section and those within it."""
    within = [sections(key.kind.section) for key in keys_of(top) if isinstance(key.kind, Sections)]
    return {top}.union(*within)


def cells(page: Path) -> set[tuple[str, ...]]:
    """The cells of all tables of a page, as a reader sees them."""
    text = config_keys.expand(page.read_text(encoding="utf-8"))
    row = re.compile(
        r"^   \* - (?:\.\. _key-.*:\n\n       )?(.*)\n     - (.*)\n     - (.*)\n     - (.*)$", re.MULTILINE
    )
    return set(row.findall(text))


def missing(top: type, shown: set[tuple[str, ...]]) -> list[str]:
    return [
        f"{section.__name__}: {key.name}"
        for section in sections(top)
        for key in keys_of(section)
        if (f"``{key.name}``", config_keys.type_text(key), config_keys.default_text(key), key.help) not in shown
    ]


@rows(__file__, "keys_of_the_contract")
def test_keys_of_the_contract(section: str, names: str) -> None:
    """They are declared and in the reference: files that can be loaded today can be loaded tomorrow."""
    assert sorted(key.name for key in keys_of(config_keys.section(section))) == sorted(names.split())
    assert missing(config_keys.section(section), cells(KEYS)) == []


@pytest.mark.parametrize("driver", sorted({*KNOWN, *WITHOUT_PAGES}))
def test_drivers(driver: str) -> None:
    """Every key of each is in the reference. Its overview leads to its pages, or has sections of the same names."""
    top = type(Drivers.get(driver).getProviderConfig({"name": "x"}))
    assert missing(top, cells(KEYS)) == []
    if driver in WITHOUT_PAGES:
        return
    there = {page.stem for page in (SOURCE / "drivers" / driver).glob("*.rst")} - {"index"}
    overview = (SOURCE / "drivers" / driver / "index.rst").read_text(encoding="utf-8")
    assert set(re.findall(r"^   .+ <(\w+)>$", overview.partition(".. toctree::")[2], re.MULTILINE)) >= there
    sections = {title.lower() for title in re.findall(r"^(\w+)\n-{3,}$", overview, re.MULTILINE)}
    assert there | sections >= {"configuration", "behaviour", "troubleshooting"}


def test_tables_of_keys() -> None:
    """A reader finds what a key may be, what is so without it, and what it means; pages use the directive."""
    for row in cells(KEYS):
        assert all(row)
        assert row[0] == "Key" or row[3].endswith(".")
    of_drivers = [page for page in SOURCE.glob("drivers/*/*.rst") if ".. config-keys::" in page.read_text()]
    for page in (KEYS, *of_drivers):
        assert "``" in config_keys.expand(page.read_text(encoding="utf-8"))
        assert config_keys.DIRECTIVE.search(page.read_text(encoding="utf-8")), page


@rows(__file__, "cells")
def test_cells(section: str, name: str, kind: str, default: str) -> None:
    key: Any
    (key,) = (key for key in keys_of(config_keys.section(section)) if key.name == name)
    assert (config_keys.type_text(key), config_keys.default_text(key)) == (kind, default)


def test_anchors_of_keys() -> None:
    page = config_keys.expand(KEYS.read_text(encoding="utf-8"))
    anchors = re.findall(r"\.\. _(key-[a-z0-9-]+):\n\n       ``([^`]+)``\n", page)
    assert len({anchor for anchor, _ in anchors}) == len(anchors) > 400
    assert {("key-webapp-port", "webapp.port"), ("key-openstack-pools-max-ram", "max-ram")} <= set(anchors)
    assert {"key-openstack-pools-labels-flavor-name", "key-pools-max-servers"} <= {anchor for anchor, _ in anchors}


def programs() -> dict[str, str]:
    """Name of each program that an installation has -> its module."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options.entry_points"]["console_scripts"].split("\n")
    return {
        name.strip(): place.strip().partition(":")[0] for name, _, place in (x.partition("=") for x in lines) if name
    }


@pytest.mark.parametrize("program", programs())
def test_programs(program: str) -> None:
    """Each has a page and a man page, with each command, each option and each argument, and what it means."""
    page = (MAN / f"{program}.rst").read_text(encoding="utf-8")
    assert command_line.DIRECTIVE.findall(page) == [programs()[program]]
    assert f'("reference/man/{program}", "{program}",' in (SOURCE / "conf.py").read_text(encoding="utf-8")
    assert re.search(rf"^   {program}$", (MAN / "index.rst").read_text(encoding="utf-8"), re.MULTILINE)
    page = command_line.expand(page)
    parser = command_line.parser_of(programs()[program])
    once = page.partition("Options of listings\n")[2].partition(".. program::")[0]
    for part in (parser, *command_line.commands_of(parser).values()):
        section = page.partition(f".. program:: {part.prog}\n")[2].partition(".. program::")[0] + once
        shown = dict(re.findall(r"^\.\. option:: (.*)\n\n   (.*)$", section, re.MULTILINE))
        assert section, f"{part.prog} has no section"
        assert all(len(text) > 3 for text in shown.values()), f"{part.prog} has an option without an explanation"
        # argparse has no public list of them.
        for action in part._actions:  # noqa: SLF001
            names = [name for name in action.option_strings if name not in parser._option_string_actions]  # noqa: SLF001
            if names and action.help != argparse.SUPPRESS:
                assert any(line.startswith(", ".join(names)) for line in shown), f"{part.prog} {names}"


def test_columns() -> None:
    """Each command that prints a listing is in the table of columns."""
    commands = command_line.commands_of(command_line.parser_of("nodepool.cmd.cli")).items()
    listings = {name for name, command in commands if "--columns" in command.format_usage()}
    shown = {re.split("[ ,]", name)[0] for name in listing_columns.tables()}
    # Other names, and commands that print the table of ``list``.
    assert listings - shown == {"nodes", "requests", "labels", "builds", "delete", "hold"}
    page = listing_columns.expand((SOURCE / "reference" / "commands.rst").read_text(encoding="utf-8"))
    assert "   * - ``info``, second table\n     - ID (``id``), Server ID (``server_id``)\n     - the same\n" in page


def test_markup_in_a_help_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What argparse shows as it is must not become mark-up."""
    whole = argparse.ArgumentParser("lab")
    commands = whole.add_subparsers()
    parser = commands.add_parser("list", help="lists", epilog="examples: lab --state 'gpu-*'; lab '*'")
    parser.add_argument("--state", help="names, e.g. gpu-*; <pool>_ or `x`", choices=("a", "b"))
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    monkeypatch.setattr(command_line, "parser_of", lambda _module: whole)
    page = command_line.expand((MAN / "nodepool-tls.rst").read_text(encoding="utf-8"))
    assert ".. option:: --state {a,b}\n\n   Names, e.g. gpu-\\*; \\<pool\\>\\_ or \\`x\\`.\n" in page
    assert "--hidden" not in page
    assert {"lab --state 'gpu-*'", "lab '*'"} <= {line.strip() for line in page.splitlines()}


def test_tables_of_the_code() -> None:
    """The page about the architecture shows all calls of drivers, and all moves of a request."""
    page = code_tables.expand((SOURCE / "explanation" / "architecture.rst").read_text(encoding="utf-8"))
    assert page.count("\n   * - ``") == len(HOOKS) > 50
    assert len(re.findall(r"^    [a-z]+ -> [a-z]+: ", page, re.MULTILINE)) == len(MOVES) > 30


def test_metrics() -> None:
    """Each is on the page once, with its names and what it means."""
    page = metrics.expand((SOURCE / "reference" / "metrics.rst").read_text(encoding="utf-8"))
    for metric in ALL:
        assert page.count(f"\n     - {metrics.meaning(metric)}\n") == 1, metric.name
        names = (*metrics.statsd_names(metric), *metrics.prometheus_names(metric))
        assert [name for name in names if f"``{name}``" not in page] == []
    assert "     - ms\n     - ``nodepool_dib_image_build_duration``\n" in page
    assert "``nodepool.launch.provider.<provider>.<az>.<result>``" in page


def test_alerts() -> None:
    """The page about alerts has each rule."""
    groups = yaml.safe_load((ROOT / "etc" / "prometheus-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    page = (SOURCE / "how-to" / "alerts.rst").read_text(encoding="utf-8")
    found = re.findall(r"^\* ``(\w+)``: .", page, re.MULTILINE)
    assert found == [rule["alert"] for group in groups for rule in group["rules"]]


def test_release_notes() -> None:
    """Each fragment is shown, once, under the heading of its type."""
    page = release_notes.expand(".. release-notes::\n")
    files = sorted((ROOT / "releasenotes").glob("*.rst"))
    headings = list(release_notes.types().values())
    assert files
    assert {path.suffixes[-2].removeprefix(".") for path in files} <= set(release_notes.types())
    assert page.count("\n* ") == len(files)
    assert [line for line in page.splitlines() if line in headings] == headings


def recipes() -> list[list[str]]:
    """Elements of diskimage-builder in the images of the page."""
    blocks = yaml_blocks(SOURCE / "explanation" / "images.rst")
    images = [image for block in blocks for image in yaml.safe_load(block).get("diskimages", [])]
    return [image["elements"] for image in images if "vm" in image.get("elements", [])]


def test_recipes_of_images() -> None:
    """All elements exist, one makes the partitions, and an operating system is in it: the tool checks that."""
    elements = str(Path(diskimage_builder.__file__).parent / "elements")
    assert {recipe[0] for recipe in recipes()} == {"debian-minimal", "ubuntu-minimal", "centos-minimal"}
    for recipe in recipes():
        resolved = {name for name, _ in get_elements(recipe, elements)}
        assert set(recipe) <= resolved
        assert len([name for name in resolved if name.startswith("block-device-")]) == 1
    for wrong in (["debian-minimal", "nonsense"], ["debian-minimal", "vm"]):
        with pytest.raises(MissingElementException):
            get_elements(wrong, elements)
