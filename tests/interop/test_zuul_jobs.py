# SPDX-License-Identifier: Apache-2.0
"""``.zuul.yaml``: a released Zuul accepts its jobs, and what they name is there."""

from __future__ import annotations

import configparser
import warnings
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def items(kind: str) -> list[dict[str, Any]]:
    """The items of a kind, such as ``job``."""
    found = yaml.safe_load((ROOT / ".zuul.yaml").read_text(encoding="utf-8"))
    return [item[kind] for item in found if kind in item]


def test_zuul_accepts_them() -> None:
    """The schemas of Zuul's own parsers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from zuul import configloader

    assert {kind for item in yaml.safe_load((ROOT / ".zuul.yaml").read_text()) for kind in item} == {"job", "project"}
    for job in items("job"):
        configloader.JobParser.schema(job)
    for project in items("project"):
        configloader.ProjectParser(None).schema(project)


def test_what_they_name_is_there() -> None:
    """Playbooks, the role, parents, tox environments; and the project runs jobs of this file only."""
    jobs = {job["name"]: job for job in items("job")}
    sections = configparser.ConfigParser(interpolation=None)
    sections.read(ROOT / "tox.ini", encoding="utf-8")
    for job in jobs.values():
        assert job["parent"] in {"base", *jobs}
        playbooks = [ROOT / job[phase] for phase in ("run", "post-run") if phase in job]
        assert all(yaml.safe_load(playbook.read_text(encoding="utf-8")) for playbook in playbooks)
        environment = job.get("vars", {}).get("nodepool_functional_environment")
        assert environment is None or f"testenv:{environment}" in sections
        command = job.get("vars", {}).get("nodepool_test_command")
        assert command is None or (ROOT / command.split()[0]).exists()
    [play] = yaml.safe_load((ROOT / "playbooks" / "functional.yaml").read_text(encoding="utf-8"))
    assert [(ROOT / "roles" / role / "tasks" / "main.yaml").exists() for role in play["roles"]] == [True]
    [project] = items("project")
    named = [job if isinstance(job, str) else next(iter(job)) for line in project.values() for job in line["jobs"]]
    assert set(named) <= set(jobs)
    assert not {name for name in named if jobs[name].get("abstract")}


def test_each_functional_environment_has_a_job() -> None:
    sections = configparser.ConfigParser(interpolation=None)
    sections.read(ROOT / "tox.ini", encoding="utf-8")
    environments = {name.partition(":")[2] for name in sections.sections() if name.startswith("testenv:functional-")}
    chosen = {job.get("vars", {}).get("nodepool_functional_environment") for job in items("job")}
    assert environments == chosen - {None}
