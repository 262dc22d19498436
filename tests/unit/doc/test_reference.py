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

from doc.source.extensions import code_tables, command_line, config_keys, release_notes
from nodepool.config.objects import DiskImage, Label, TenantLimits, TopLevel
from nodepool.config.webapp import Authenticator, OperatorRule
from nodepool.config.zookeeper import ZooKeeperServer, ZooKeeperSettings
from nodepool.driver.config import ConfigPool, ProviderConfig
from nodepool.driver.gateway import HOOKS
from nodepool.driver.metastatic.config import MetastaticLabel, MetastaticPool, MetastaticProviderConfig
from nodepool.driver.openstack.config import (
    CloudImage,
    OpenStackLabel,
    OpenStackPool,
    OpenStackProviderConfig,
    ProviderDiskImage,
)
from nodepool.driver.registry import KNOWN, Drivers
from nodepool.driver.static.config import StaticNode, StaticPool, StaticProviderConfig
from nodepool.model.config_keys import Sections, keys_of
from nodepool.plan.request_stage import MOVES
from tests.unit.test_samples import ROOT, SOURCE, yaml_blocks

KEYS: Final = SOURCE / "reference" / "configuration-keys.rst"
MAN: Final = SOURCE / "reference" / "man"
LOGIN: Final = "connection-type connection-port python-path shell-type"
PROVIDER: Final = "name driver max-concurrency priority"
POOL: Final = "name max-servers node-attributes priority"
#: Section -> names of the keys that users of Nodepool 11.0.0 have in their files, and of those that are ours.
CONTRACT: Final[dict[type, str]] = {
    ZooKeeperSettings: "zookeeper-servers zookeeper-timeout zookeeper-tls.cert zookeeper-tls.key zookeeper-tls.ca",
    TopLevel: "webapp.port webapp.listen_address webapp.builder-port webapp.zuul-url webapp.tls.cert webapp.tls.key "
    "webapp.auth.require-login webapp.auth.authenticators webapp.auth.operators webapp.allowed-hosts "
    "webapp.trusted-proxies webapp.origins webapp.pages-port tracing.enabled tracing.protocol tracing.endpoint "
    "tracing.service_name tracing.tls_cert tracing.tls_key tracing.tls_ca tracing.certificate_file tracing.insecure "
    "tracing.timeout tracing.compression elements-dir images-dir build-log-dir build-log-retention labels "
    "max-hold-age diskimages providers tenant-resource-limits",
    ZooKeeperServer: "host port chroot",
    Label: "name min-ready max-ready-age",
    DiskImage: "name abstract parent formats keep-formats delete-after-upload rebuild-age build-timeout release "
    "elements env-vars pause username python-path shell-type dib-cmd metadata",
    TenantLimits: "tenant-name max-servers max-cores max-ram max-volumes max-volume-gb",
    Authenticator: "name driver client_id issuer_id audience uid_claim max_validity_time skew secret public_key "
    "client_secret scope keys_url",
    OperatorRule: "claim contains",
    ProviderConfig: PROVIDER,
    ConfigPool: POOL,
    OpenStackProviderConfig: f"{PROVIDER} pools cloud region-name rate boot-timeout launch-timeout launch-retries "
    "image-upload-timeout image-name-format post-upload-hook clean-floating-ips clean-leaked-images "
    "port-cleanup-interval nodepool-id diskimages cloud-images",
    ProviderDiskImage: "name pause config-drive meta connection-type connection-port",
    CloudImage: f"name config-drive image-id image-name username {LOGIN}",
    OpenStackPool: f"{POOL} labels max-cores max-ram max-volumes max-volume-gb ignore-provider-quota "
    "availability-zones networks security-groups auto-floating-ip host-key-checking",
    OpenStackLabel: "name diskimage cloud-image flavor-name min-ram key-name console-log boot-from-volume volume-size "
    "instance-properties dynamic-instance-properties userdata networks host-key-checking",
    StaticProviderConfig: f"{PROVIDER} pools quarantine-after",
    StaticPool: f"{POOL} nodes",
    StaticNode: "name labels host-key host-key-checking timeout ssh-port username max-parallel-jobs quarantine-after "
    f"{LOGIN}",
    MetastaticProviderConfig: f"{PROVIDER} pools launch-retries launch-timeout boot-timeout rate",
    MetastaticPool: f"{POOL} labels host-key-checking",
    MetastaticLabel: "name backing-label max-parallel-jobs grace-time min-retention-time max-age host-key-checking",
}
#: Drivers whose keys are in the reference of the file alone.
WITHOUT_PAGES: Final = ("example", "fake")
#: Driver -> directories with its pages: the keys that it has of another driver are in the pages of that one.
OTHERS: Final = {"openshift": ["kubernetes"], "openshiftpods": ["openshift", "kubernetes"]}


def sections(top: type) -> set[type]:
    """A section and those within it."""
    within = [sections(key.kind.section) for key in keys_of(top) if isinstance(key.kind, Sections)]
    return {top}.union(*within)


def rows(*pages: Path) -> set[tuple[str, ...]]:
    """The cells of all tables of pages, as a reader sees them."""
    texts = [config_keys.expand(page.read_text(encoding="utf-8")) for page in pages]
    row = re.compile(r"^   \* - (.*)\n     - (.*)\n     - (.*)\n     - (.*)$", re.MULTILINE)
    return {found for text in texts for found in row.findall(text)}


def missing(top: type, shown: set[tuple[str, ...]]) -> list[str]:
    return [
        f"{section.__name__}: {key.name}"
        for section in sections(top)
        for key in keys_of(section)
        if (f"``{key.name}``", config_keys.type_text(key), config_keys.default_text(key), key.help) not in shown
    ]


@pytest.mark.parametrize("section", CONTRACT, ids=lambda section: section.__name__)
def test_keys_of_the_contract(section: type) -> None:
    """They are declared and in the reference: files that can be loaded today can be loaded tomorrow."""
    assert sorted(key.name for key in keys_of(section)) == sorted(CONTRACT[section].split())
    assert missing(section, rows(KEYS)) == []


@pytest.mark.parametrize("driver", sorted({*KNOWN, *WITHOUT_PAGES}))
def test_drivers(driver: str) -> None:
    """Each has the same pages, to which its overview leads, or sections of its one page, with every key."""
    top = type(Drivers.get(driver).getProviderConfig({"name": "x"}))
    if driver in WITHOUT_PAGES:
        assert missing(top, rows(KEYS)) == []
        return
    names = [driver, *OTHERS.get(driver, [])]
    pages = [page for name in names for page in sorted((SOURCE / "drivers" / name).glob("*.rst"))]
    assert missing(top, rows(KEYS, *pages)) == []
    there = {page.stem for page in pages if page.parent.name == driver} - {"index"}
    overview = (SOURCE / "drivers" / driver / "index.rst").read_text(encoding="utf-8")
    assert {line.strip() for line in overview.partition(".. toctree::")[2].splitlines()} >= there
    sections = {title.lower() for title in re.findall(r"^(\w+)\n-{3,}$", overview, re.MULTILINE)}
    assert there | sections >= {"configuration", "behaviour", "troubleshooting"}


def test_tables_of_keys() -> None:
    """A reader finds what a key may be, what is so without it, and what it means; pages use the directive."""
    for row in rows(KEYS):
        assert all(row)
        assert row[0] == "Key" or row[3].endswith(".")
    of_drivers = [page for page in SOURCE.glob("drivers/*/*.rst") if ".. config-keys::" in page.read_text()]
    for page in (SOURCE / "reference" / "configuration-file.rst", *of_drivers):
        assert "``" in config_keys.expand(page.read_text(encoding="utf-8"))
        assert config_keys.DIRECTIVE.search(page.read_text(encoding="utf-8")), page


@pytest.mark.parametrize(
    ("section", "name", "expected"),
    [
        (ProviderConfig, "name", ("text, not empty", "required")),
        (ProviderConfig, "priority", ("whole number", "100")),
        (ConfigPool, "priority", ("whole number", "the provider's")),
        (ConfigPool, "max-servers", ("whole number", "unlimited")),
        (OpenStackPool, "auto-floating-ip", ("true or false", "true")),
        (OpenStackPool, "labels", ("list of sections", "none")),
        (OpenStackProviderConfig, "rate", ("number, 0 or more; seconds", "by the cloud's answers")),
        (StaticNode, "connection-type", ("text", "``ssh``")),
        (DiskImage, "env-vars", ("mapping", "none")),
        (TopLevel, "webapp.port", ("whole number, 0 to 65535", "8005")),
    ],
)
def test_cells(section: type, name: str, expected: tuple[str, str]) -> None:
    key: Any
    (key,) = (key for key in keys_of(section) if key.name == name)
    assert (config_keys.type_text(key), config_keys.default_text(key)) == expected


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
    for part in (parser, *command_line.commands_of(parser).values()):
        section = page.partition(f".. program:: {part.prog}\n")[2].partition(".. program::")[0]
        shown = dict(re.findall(r"^\.\. option:: (.*)\n\n   (.*)$", section, re.MULTILINE))
        assert section, f"{part.prog} has no section"
        assert all(len(text) > 3 for text in shown.values()), f"{part.prog} has an option without an explanation"
        # argparse has no public list of them.
        for action in part._actions:  # noqa: SLF001
            names = [name for name in action.option_strings if name not in parser._option_string_actions]  # noqa: SLF001
            if names and action.help != argparse.SUPPRESS:
                assert any(line.startswith(", ".join(names)) for line in shown), f"{part.prog} {names}"


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
