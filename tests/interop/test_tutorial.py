# SPDX-License-Identifier: Apache-2.0
"""``tutorial/zuul``: a released Zuul accepts the configuration that the page shows. ``functional-tutorial`` runs it."""

from __future__ import annotations

import configparser
import warnings
from types import SimpleNamespace
from typing import Any

import yaml

from tests.support.tutorial_page import sections

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from zuul import configloader
    from zuul.driver.git import GitDriver

NAMES = ("zookeeper.rst", "hosts.rst", "zuul.rst")


def files(page: str) -> dict[str, str]:
    """Path -> text of each file that a page tells to write."""
    return {step.path: step.text for steps in sections(page).values() for step in steps if step.path}


def items(text: str, kind: str) -> list[dict[str, Any]]:
    """The items of a kind, such as ``job``."""
    return [item[kind] for item in yaml.safe_load(text) if kind in item]


def test_zuul_accepts_the_configuration() -> None:
    """The schemas of Zuul's own parsers; the pipeline is that of the connection in ``zuul.conf``."""
    written = files("zuul.rst")
    own, shared = written["/srv/git/example/zuul.yaml"], written["/srv/git/zuul-config/zuul.yaml"]
    (nodeset,) = items(own, "nodeset")
    configloader.NodeSetParser(None).schema(nodeset)
    for job in items(own, "job") + items(shared, "job"):
        configloader.JobParser.schema(job)
        for playbook in (job[phase] for phase in ("pre-run", "run") if phase in job):
            assert any(path.endswith(f"/{playbook}") for path in written)
    (project,) = items(own, "project")
    configloader.ProjectParser(None).schema(project)
    (pipeline,) = items(shared, "pipeline")
    assert set(project) == {pipeline["name"]}
    conf = configparser.ConfigParser()
    conf.read_string(written["/etc/zuul/zuul.conf"])
    (name,) = (section.split()[1] for section in conf.sections() if section.startswith("connection "))
    assert conf[f"connection {name}"]["driver"] == GitDriver.name
    connections = SimpleNamespace(connections={name: SimpleNamespace(driver=GitDriver())})
    configloader.PipelineParser(SimpleNamespace(connections=connections)).schema(pipeline)
    (tenant,) = items(written["/etc/zuul/main.yaml"], "tenant")
    (source,) = tenant["source"].items()
    assert source[0] == name
    configloader.TenantParser.tenant_source(source[1])


def test_one_page_goes_on_with_what_another_made() -> None:
    """The label, the user, the key and the certificates."""
    zuul, hosts = files("zuul.rst"), yaml.safe_load(files("hosts.rst")["/etc/nodepool/nodepool.yaml"])
    (nodeset,) = items(zuul["/srv/git/example/zuul.yaml"], "nodeset")
    assert [node["label"] for node in nodeset["nodes"]] == [label["name"] for label in hosts["labels"]]
    conf = configparser.ConfigParser()
    conf.read_string(zuul["/etc/zuul/zuul.conf"])
    (server,) = hosts["zookeeper-servers"]
    assert conf["zookeeper"]["hosts"] == f"{server['host']}:{server['port']}"
    commands = {page: "\n".join(step.command for steps in sections(page).values() for step in steps) for page in NAMES}
    assert 'ssh-keygen -q -t ed25519 -N "" -C zuul-executor -f /root/zuul-executor' in commands["hosts.rst"]
    assert f"/root/zuul-executor {conf['executor']['private_key_file']}" in commands["zuul.rst"]
    assert "nodepool-tls -d /root/zk-tls client zuul" in commands["zookeeper.rst"]
    for key, made in (("tls_cert", "clients/zuul.pem"), ("tls_key", "clients/zuul.key"), ("tls_ca", "ca.pem")):
        assert f"/root/zk-tls/{made} {conf['zookeeper'][key]}" in commands["zuul.rst"]
