# SPDX-License-Identifier: Apache-2.0
"""What we show people as an example must be right: files in etc/, and the configuration in the documentation."""

from __future__ import annotations

import configparser
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.validator import validate

ROOT = Path(__file__).parents[2]

#: What tools/demo puts into the environment.
DEMO_ENVIRONMENT = {
    "NODEPOOL_DEMO_DIRECTORY": "/somewhere",
    "NODEPOOL_DEMO_SSH_PORT": "2222",
    "NODEPOOL_DEMO_WEB_PORT": "8005",
    "NODEPOOL_DEMO_ZOOKEEPER_PORT": "2281",
}


def blocks(path: Path, language: str) -> list[str]:
    """The examples in one language in a reStructuredText file."""
    found = re.findall(
        rf"^( *)\.\. code-block:: {language}\n(?: +:.*\n)*\n((?:\1 +.*\n|\n)+)", path.read_text(), re.MULTILINE
    )
    return [textwrap.dedent(block) for _, block in found]


def yaml_blocks(path: Path) -> list[str]:
    """The YAML examples in a reStructuredText file."""
    return blocks(path, "yaml")


@pytest.mark.parametrize("name", ["nodepool.yaml", "demo.yaml"])
def test_sample_configuration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples have no problem, not even an unknown key."""
    for variable, value in DEMO_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    path = str(ROOT / "etc" / name)
    assert validate(path) == []
    assert load_config(path, strict=True).providers["lab"].pools


def test_readme_configuration(tmp_path: Path) -> None:
    """The configuration of the README can be copied as it is; that of OpenStack beside the rest of it."""
    static, openstack = map(yaml.safe_load, yaml_blocks(ROOT / "README.rst"))
    both = {**static, **{key: static[key] + openstack[key] for key in openstack}}
    path = tmp_path / "nodepool.yaml"
    for whole in (static, both):
        path.write_text(yaml.safe_dump(whole))
        assert validate(str(path)) == []


PAGES = [ROOT / "README.rst", *sorted((ROOT / "doc" / "source").rglob("*.rst"))]
#: Top-level keys by which files of other programs are known: clouds.yaml, Prometheus, Zuul, compose, Kubernetes.
FOREIGN = ({"clouds"}, {"scrape_configs"}, {"groups"}, {"services"}, {"apiVersion"})

#: The same in lists: Zuul's own (tests/interop/test_tutorial.py has its parsers), plays of Ansible.
ZUUL = {"job", "nodeset", "pipeline", "project", "tenant"}
PLAYS = {"hosts", "roles", "tasks"}


def completed(data: dict[str, Any]) -> dict[str, Any]:
    """A whole configuration with a section, or with several, of a page. What the section needs is added."""
    pools = [pool for provider in data.get("providers", []) for pool in provider.get("pools", [])]
    labels = {label for pool in pools for host in pool.get("nodes", []) for label in host["labels"]}
    labels |= {label["name"] for pool in pools for label in pool.get("labels", [])}
    labels -= {label["name"] for label in data.get("labels", [])}
    others = {image["parent"] for image in data.get("diskimages", []) if "parent" in image}
    others |= {image["name"] for provider in data.get("providers", []) for image in provider.get("diskimages", [])}
    others -= {image["name"] for image in data.get("diskimages", [])}
    return {
        "zookeeper-servers": [{"host": "localhost"}],
        "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
        **data,
        "labels": [*data.get("labels", []), *({"name": label} for label in sorted(labels))],
        "providers": data.get("providers", []),
        "diskimages": [*data.get("diskimages", []), *({"name": name, "elements": ["vm"]} for name in sorted(others))],
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_configuration(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML in the documentation is a configuration that has no problem, or plainly the file of another program."""
    for number, block in enumerate(yaml_blocks(page)):
        data = yaml.safe_load(block)
        if not isinstance(data, dict):
            assert all(set(item) <= ZUUL or set(item) <= PLAYS for item in data), f"what is this?\n{block}"
            continue
        if set(data) == {"nodes"} or any(keys <= set(data) for keys in FOREIGN):
            continue
        for variable in re.findall(r"%\((NODEPOOL_\w+)\)", block):
            monkeypatch.setenv(variable, "something")
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(completed(data)))
        # The files of the certificates are not here.
        assert [problem for problem in validate(str(path)) if "tls" not in problem.key] == [], block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_ini_and_json(page: Path) -> None:
    """Parts of units, of zuul.conf and of answers can be parsed."""
    for block in blocks(page, "ini"):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read_string(block if block.lstrip().startswith("[") else f"[Service]\n{block}")
        assert parser.sections()
    for block in blocks(page, "json"):
        assert json.loads(block)


def test_there_is_something_to_look_at() -> None:
    assert sum(len(yaml_blocks(page)) for page in PAGES) > 10
    assert sum(len(blocks(page, "ini")) for page in PAGES) > 3
