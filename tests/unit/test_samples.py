# SPDX-License-Identifier: Apache-2.0
"""What we show as an example must be right: files in etc/, and configurations in the documentation."""

from __future__ import annotations

import configparser
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nodepool.config.assembly import validate
from nodepool.config.loader import load_config

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "doc" / "source"
PAGES = [ROOT / "README.rst", *sorted(SOURCE.rglob("*.rst"))]
#: Top-level keys by which files of other programs are known: clouds.yaml, Prometheus, Zuul, compose, Kubernetes.
FOREIGN = ({"clouds"}, {"scrape_configs"}, {"groups"}, {"services"}, {"apiVersion"})
#: The same in lists: Zuul's own (tests/interop/test_tutorial.py has its parsers), plays of Ansible.
LISTS = ({"job", "nodeset", "pipeline", "project", "tenant"}, {"hosts", "roles", "tasks"})
#: By which editors check a configuration file.
SCHEMA = ROOT / "nodepool" / "config" / "nodepool.schema.json"
EDITOR = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def blocks(path: Path, language: str) -> list[str]:
    """The examples in one language in a reStructuredText file."""
    pattern = rf"^( *)\.\. code-block:: {language}\n(?: +:.*\n)*\n((?:\1 +.*\n|\n)+)"
    return [textwrap.dedent(block) for _, block in re.findall(pattern, path.read_text(), re.MULTILINE)]


def yaml_blocks(path: Path) -> list[str]:
    return blocks(path, "yaml")


@pytest.mark.parametrize("name", ["nodepool.yaml", "demo.yaml"])
def test_sample_configuration(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples have no problem, not even an unknown key."""
    # What tools/demo puts into the environment.
    for variable in ("SSH_PORT", "WEB_PORT", "PAGES_PORT", "ZOOKEEPER_PORT"):
        monkeypatch.setenv(f"NODEPOOL_DEMO_{variable}", "2222")
    monkeypatch.setenv("NODEPOOL_DEMO_DIRECTORY", "/somewhere")
    path = str(ROOT / "etc" / name)
    assert validate(path) == []
    assert load_config(path).providers["lab"].pools
    text = re.sub(r"%\(\w+\)", "1", (ROOT / "etc" / name).read_text(encoding="utf-8"))
    EDITOR.validate(yaml.safe_load(text))


def test_readme_configuration(tmp_path: Path) -> None:
    """The configuration of the README can be copied as it is; that of OpenStack beside the rest of it."""
    static, openstack = map(yaml.safe_load, yaml_blocks(ROOT / "README.rst"))
    both = {**static, **{key: static[key] + openstack[key] for key in openstack}}
    path = tmp_path / "nodepool.yaml"
    for whole in (static, both):
        EDITOR.validate(whole)
        path.write_text(yaml.safe_dump(whole))
        assert validate(str(path)) == []


def completed(data: dict[str, Any]) -> dict[str, Any]:
    """A whole configuration with a section, or with several, of a page. What the section needs is added."""
    providers, images, own = data.get("providers", []), data.get("diskimages", []), data.get("labels", [])
    pools = [pool for provider in providers for pool in provider.get("pools", [])]
    labels = {label for pool in pools for host in pool.get("nodes", []) for label in host["labels"]}
    labels |= {label["name"] for pool in pools for label in pool.get("labels", [])}
    labels -= {label["name"] for label in own}
    others = {image["parent"] for image in images if "parent" in image}
    others |= {image["name"] for provider in providers for image in provider.get("diskimages", [])}
    others -= {image["name"] for image in images}
    return {
        "zookeeper-servers": [{"host": "localhost"}],
        "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
        **data,
        "labels": [*own, *({"name": label} for label in sorted(labels))],
        "providers": providers,
        "diskimages": [*images, *({"name": name, "elements": ["vm"]} for name in sorted(others))],
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_files(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML is a configuration without a problem, or plainly a file of another program; ini and JSON can be parsed."""
    for number, block in enumerate(yaml_blocks(page)):
        data = yaml.safe_load(block)
        if not isinstance(data, dict):
            assert all(any(set(item) <= keys for keys in LISTS) for item in data), f"what is this?\n{block}"
            continue
        if set(data) == {"nodes"} or any(keys <= set(data) for keys in FOREIGN):
            continue
        for variable in re.findall(r"%\((NODEPOOL_\w+)\)", block):
            monkeypatch.setenv(variable, "something")
        if any(provider.get("driver") == "example" for provider in data.get("providers", [])):
            # Not installed here. The tests of its distribution have such a section, too.
            continue
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(completed(data)))
        EDITOR.validate(completed(data))
        # The files of the certificates are not here.
        assert [problem for problem in validate(str(path)) if "tls" not in problem.key] == [], block
    for block in blocks(page, "ini"):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read_string(block if block.lstrip().startswith("[") else f"[Service]\n{block}")
        assert parser.sections()
    for block in blocks(page, "json"):
        assert json.loads(block)
