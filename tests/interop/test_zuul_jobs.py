# SPDX-License-Identifier: Apache-2.0
"""``.zuul.yaml``: a released Zuul accepts its jobs, and what they name is there."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
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
        assert job.get("parent", "base") in {"base", *jobs}
        playbooks = [ROOT / job[phase] for phase in ("run", "post-run") if phase in job]
        assert all(yaml.safe_load(playbook.read_text(encoding="utf-8")) for playbook in playbooks)
        environment = job.get("vars", {}).get("nodepool_functional_environment")
        assert environment is None or f"testenv:{environment}" in sections
        command = job.get("vars", {}).get("nodepool_test_command")
        assert command is None or (ROOT / command.split()[0]).exists()
    for playbook in ("functional", "config-validate"):
        [play] = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yaml").read_text(encoding="utf-8"))
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


@pytest.mark.parametrize("new", ["max-hold-age: 2", "max-hold-agee: 2"], ids=["fine", "mistyped"])
def test_configuration_of_a_site(new: str, tmp_path: Path) -> None:
    """The role runs in Ansible, with Zuul's own ``zuul_return``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import zuul
    # Its other plug-ins expect an executor.
    for name in ("action", "site", "work"):
        (tmp_path / name).mkdir()
    shutil.copy(Path(zuul.__file__).parent / "ansible" / "base" / "action" / "zuul_return.py", tmp_path / "action")
    file, returned = tmp_path / "site" / "nodepool.yaml", tmp_path / "work" / "results.json"
    for text in ("max-hold-age: 1", new):
        file.write_text(f"labels: [{{name: small}}]\n{text}\n", encoding="utf-8")
        for arguments in ("init -q .", "add .", "-c user.name=n -c user.email=n@example.com commit -qm m"):
            subprocess.run(["git", *arguments.split()], cwd=file.parent, check=True, timeout=60)
    returned.touch()
    variables = {
        "zuul": {"project": {"src_dir": str(file.parent)}},
        # This one has Nodepool; pip has nothing to do.
        "nodepool_config_virtualenv": sys.prefix,
        "nodepool_config_package": "PyYAML",
        "ansible_python_interpreter": sys.executable,
    }
    # Ansible takes no other locale.
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "ZUUL_JOBDIR": str(tmp_path),
        "ANSIBLE_HOME": str(tmp_path),
        "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "ANSIBLE_ACTION_PLUGINS": str(tmp_path / "action"),
    }
    play: list[str | Path] = [
        Path(sys.executable).parent / "ansible-playbook",
        "-c",
        "local",
        "-i",
        "node,",
        "-e",
        json.dumps(variables),
    ]
    done = subprocess.run(
        [*play, ROOT / "playbooks" / "config-validate.yaml"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert returned.read_text(encoding="utf-8"), done.stdout
    found = json.loads(returned.read_text(encoding="utf-8"))["data"]["zuul"]
    if "agee" in new:
        assert done.returncode == 2
        assert "nodepool.yaml has an error" in done.stdout
        [problem] = [one for one in found["file_comments"]["nodepool.yaml"] if one["level"] == "error"]
        assert problem["line"] == 2
        assert problem["message"].startswith("max-hold-agee: unknown key, did you mean 'max-hold-age'?")
    else:
        assert done.returncode == 0, done.stdout
        assert {one["level"] for one in found["file_comments"]["nodepool.yaml"]} == {"warning"}
    assert "max-hold-age" in found["warnings"][0]
