# SPDX-License-Identifier: Apache-2.0
"""What daemons of Nodepool 11 take, and ours, too (reference/configuration 1): a warning with file and line.

The tables were made with the released package: it loads each of these files. Our ``config-validate`` refuses those of
the first table: its ``config-validate`` refuses them, too, or a daemon leaves something out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.config.problems import Severity
from nodepool.config.schema import Reading, read_as
from nodepool.config.validator import validate
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.model import config_keys as keys

HEAD = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"
LABELS = "labels: [{name: small}, {name: big}]\n"
IMAGES = "diskimages: [{name: i}, {name: j}]\n"
STATIC = (
    "providers:\n- {name: p, driver: static, pools: [{name: a, nodes: [{name: h, labels: [small], host-key: k}]}]}\n"
)


def cloud(provider: str = "", pool: str = "", label: str = "", images: str = "diskimages: [{name: i}]") -> str:
    """A provider of OpenStack, with further keys of its parts."""
    labels = f"[{{name: small, diskimage: i, min-ram: 1{label}}}]"
    pools = f"[{{name: a{pool}, labels: {labels}}}]"
    return f"{IMAGES}providers:\n- {{name: p, cloud: c, {images}{provider}, pools: {pools}}}\n"


def provider(config: Config) -> Any:
    return config.providers["p"]


def pool(config: Config, name: str = "a") -> Any:
    return provider(config).pools[name]


Check = Callable[[Config], bool]


def table(severity: Severity, *rows: tuple[str, str, str, Check]) -> list[Any]:
    """:param rows: name; text of the file; key that a problem names; does the configuration mean the right thing?"""
    return [pytest.param(severity, text, key, check, id=name) for name, text, key, check in rows]


ERRORS = table(
    Severity.TOLERATED,
    (
        "image beside the spec of a pod",
        f"{LABELS}providers: [{{name: p, driver: kubernetes, pools: [{{name: main, labels: [{{name: small, type: pod, "
        "image: a, cpu: 2, python-path: /p, spec: {containers: []}}]}]}]\n",
        "labels[0].image",
        lambda c: (
            [(one.spec, one.cpu, one.python_path) for one in pool(c, "main").labels.values()]
            == [({"containers": []}, 2, "/p")]
        ),
    ),
    ("labels", "labels:\nproviders: []\n", "labels", lambda c: c.labels == {}),
    ("diskimages", f"{LABELS}diskimages:\n{STATIC}", "diskimages", lambda c: c.diskimages == {}),
    ("providers", f"{LABELS}providers:\n", "providers", lambda c: c.providers == {}),
    ("webapp", f"{LABELS}webapp:\n{STATIC}", "webapp", lambda c: c.webapp_port == 8005),
    ("tenants", f"tenant-resource-limits:\n{LABELS}{STATIC}", "tenant-resource-limits", lambda c: len(c.labels) == 2),
    ("max-hold-age", f"max-hold-age:\n{LABELS}{STATIC}", "max-hold-age", lambda c: c.max_hold_age == 0),
    ("lists of a pool", LABELS + cloud(pool=", networks: "), "networks", lambda c: pool(c).networks == []),
    (
        "list of a provider",
        LABELS + cloud(provider=", cloud-images: "),
        "cloud-images",
        lambda c: len(pool(c).labels) == 1,
    ),
    ("flags", LABELS + cloud(pool=", host-key-checking: "), "host-key-checking", lambda c: pool(c).host_key_checking),
    ("mapping", LABELS + cloud(images="diskimages: [{name: i, meta: }]"), "meta", lambda c: len(pool(c).labels) == 1),
    (
        "limit",
        f"tenant-resource-limits: [{{tenant-name: t, max-ram: }}]\n{LABELS}",
        "max-ram",
        lambda c: c.tenant_resource_limits == {"t": {}},
    ),
    (
        "quotes in a label",
        "labels: [{name: small, min-ready: '2'}]\n",
        "min-ready",
        lambda c: c.labels["small"].min_ready == 2,
    ),
    ("quotes in a pool", LABELS + cloud(pool=", max-servers: '3'"), "max-servers", lambda c: pool(c).max_servers == 3),
    ("quotes in a provider", LABELS + cloud(provider=", rate: '0.5'"), "rate", lambda c: provider(c).rate == 0.5),
    (
        "quotes of a limit",
        "tenant-resource-limits: [{tenant-name: t, max-cores: '4'}]\n",
        "max-cores",
        lambda c: c.tenant_resource_limits == {"t": {"cores": 4}},
    ),
    (
        "quotes of a host",
        LABELS + STATIC.replace("host-key: k", "max-parallel-jobs: '2'"),
        "max-parallel-jobs",
        lambda c: pool(c).hosts[0].slots == 2,
    ),
    (
        "fraction",
        LABELS + cloud(provider=", max-concurrency: 3.0"),
        "max-concurrency",
        lambda c: type(provider(c).max_concurrency) is int,
    ),
    ("no image", LABELS + cloud().replace("diskimage: i, ", ""), "labels[0]", lambda c: pool(c).labels == {}),
    ("no flavor", LABELS + cloud().replace(", min-ram: 1", ""), "labels[0]", lambda c: pool(c).labels == {}),
    (
        "diskimage twice",
        f"{LABELS}diskimages: [{{name: i, username: a}}, {{name: i, username: b}}]\n",
        "diskimages[0].name",
        lambda c: c.diskimages["i"].username == "b",
    ),
    (
        "text instead of a list",
        LABELS + cloud(pool=", networks: net"),
        "networks",
        lambda c: pool(c).networks == ["net"],
    ),
    (
        "number instead of a text",
        LABELS + cloud(label=", key-name: 7"),
        "key-name",
        lambda c: pool(c).labels["small"].key_name == "7",
    ),
    (
        "image by id and by name",
        LABELS + cloud(provider=", cloud-images: [{name: c, image-name: n, image-id: d}]"),
        "cloud-images[0].image-name",
        lambda c: vars(provider(c).cloud_images["c"])["image_id"] == "d" and len(pool(c).labels) == 1,
    ),
    (
        "null as a zone",
        LABELS + cloud(pool=", availability-zones: [null, z]"),
        "availability-zones[0]",
        lambda c: pool(c).azs == [None, "z"],
    ),
    ("no other zone", LABELS + cloud(pool=", availability-zones: [~]"), "zones[0]", lambda c: pool(c).azs == [None]),
    *(
        (
            f"{kind} as user data",
            LABELS + cloud(label=f", userdata: {value}}}, {{name: big, diskimage: i, min-ram: 1"),
            "labels[0].userdata",
            lambda c: list(pool(c).labels) == ["big"] and c.labels["small"].pools == [],
        )
        for kind, value in (("mapping", "{a: 1}"), ("list", "[a]"))
    ),
    (
        "words as an age",
        "labels: [{name: small, min-ready: 1, max-ready-age: soon}]\n",
        "max-ready-age",
        lambda c: (c.labels["small"].min_ready, c.labels["small"].max_ready_age) == (1, 0),
    ),
    *(
        (
            f"{kind} as the limit of a tenant",
            f"tenant-resource-limits: [{{tenant-name: t, {key}: {value}, max-ram: 5}}, {{tenant-name: u}}]\n{LABELS}",
            key,
            lambda c, name=name: c.tenant_resource_limits == {"t": {name: 0, "ram": 5}, "u": {}},
        )
        for kind, key, name, value in (
            ("words", "max-cores", "cores", "many"),
            ("list", "max-volumes", "volumes", "[1]"),
            ("nothing", "L-1", "L-1", "''"),
        )
    ),
    ("words as a port", f"webapp: {{port: many}}\n{LABELS}{STATIC}", "webapp.port", lambda c: c.webapp_port == 8005),
    (
        "words as a number of logs",
        f"build-log-retention: all\n{LABELS}{STATIC}",
        "build-log-retention",
        lambda c: c.build_log_retention == 7,
    ),
    *(
        (
            f"words as {key}",
            f"{LABELS}diskimages: [{{name: i, {key}: late}}]\n{STATIC}",
            key,
            lambda c: (c.diskimages["i"].rebuild_age, c.diskimages["i"].build_timeout) == (86400, 28800),
        )
        for key in ("rebuild-age", "build-timeout")
    ),
    (
        "pool twice",
        LABELS + STATIC.replace("pools: [", "pools: [{name: a, nodes: [{name: x, labels: [big]}]}, "),
        "pools[0].name",
        lambda c: [h.id.name for h in pool(c).hosts] == ["h"] and c.labels["big"].pools == [],
    ),
    (
        "image that the provider does not list",
        LABELS + cloud().replace("small, diskimage: i", "small, diskimage: j"),
        "labels[0].diskimage",
        lambda c: pool(c).labels == {} and c.labels["small"].pools == [],
    ),
    (
        "host in two pools",
        LABELS + STATIC.replace("pools: [", "pools: [{name: b, nodes: [{name: h, labels: [big]}]}, "),
        "pools[0].nodes[0].name",
        lambda c: len(provider(c).hosts()) == 1 and pool(c, "b").hosts == [],
    ),
    (
        "no port",
        LABELS + STATIC.replace("nodes: [", "nodes: [{name: x, labels: [big], connection-port: 70000}, "),
        "nodes[0].connection-port",
        lambda c: [host.id.name for host in pool(c).hosts] == ["h"],
    ),
)
WARNINGS = table(
    Severity.WARNING,
    (
        "label twice",
        "labels: [{name: a, min-ready: 1}, {name: b}, {name: a, min-ready: 2}]\n",
        "labels[0].name",
        lambda c: c.labels["a"].min_ready == 2,
    ),
    (
        "tenant twice",
        "tenant-resource-limits: [{tenant-name: t, max-ram: 1}, {tenant-name: t}]\n",
        "tenant-name",
        lambda c: c.tenant_resource_limits == {"t": {}},
    ),
    ("key twice", f"{LABELS}max-hold-age: 1\nmax-hold-age: 2\n", "max-hold-age", lambda c: c.max_hold_age == 2),
    (
        "label of a pool twice",
        LABELS + cloud(label="}, {name: small, diskimage: i, min-ram: 2"),
        "labels[0].name",
        lambda c: pool(c).labels["small"].min_ram == 2 and len(c.labels["small"].pools) == 1,
    ),
    (
        "no attempt",
        LABELS + cloud(provider=", launch-retries: 0"),
        "launch-retries",
        lambda c: provider(c).launch_retries == 1,
    ),
    (
        "no time",
        LABELS + STATIC.replace("host-key: k", "timeout: 0"),
        "timeout",
        lambda c: pool(c).hosts[0].timeout_seconds == 5,
    ),
    (
        "truth value",
        "labels: [{name: small, min-ready: true}]\n",
        "min-ready",
        lambda c: c.labels["small"].min_ready == 1,
    ),
    (
        "negative time",
        LABELS + cloud(provider=", boot-timeout: -5"),
        "boot-timeout",
        lambda c: provider(c).boot_timeout == 0,
    ),
    (
        "empty text",
        LABELS + cloud(label=", flavor-name: ''"),
        "flavor-name",
        lambda c: pool(c).labels["small"].flavor_name is None,
    ),
)


@pytest.mark.parametrize(("severity", "text", "key", "means"), [*ERRORS, *WARNINGS])
def test_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, severity: Severity, text: str, key: str, means: Check
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(HEAD + text, encoding="utf-8")
    config = load_config(str(file))
    assert not any(isinstance(section, UnavailableProviderConfig) for section in config.providers.values())
    assert means(config)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert all(record.getMessage().startswith(f"{file}:") for record in caplog.records)
    assert load_config(str(file)).providers == config.providers, "G-4: a reload keeps what did not change"
    problems = validate(str(file))
    assert [problem.severity for problem in problems] == [severity]
    assert problems[0].key.endswith(key)
    assert problems[0].line is not None


def test_aliases(tmp_path: Path) -> None:
    """A label that is taken out of the pool of one provider stays in the list that another has by an alias."""
    file = tmp_path / "f.yaml"
    file.write_text(
        f"{HEAD}{LABELS}{IMAGES}providers:\n"
        "- {name: p, cloud: c, diskimages: [{name: i}], pools: [{name: a, labels: &labels ["
        "{name: small, diskimage: i, min-ram: 1}, {name: big, diskimage: j, min-ram: 1}]}]}\n"
        "- {name: q, cloud: c, diskimages: [{name: i}, {name: j}], pools: [{name: a, labels: *labels}]}\n",
        encoding="utf-8",
    )
    config = load_config(str(file))
    assert list(config.providers["p"].pools["a"].labels) == ["small"]
    assert list(config.providers["q"].pools["a"].labels) == ["small", "big"]


@pytest.mark.parametrize(
    "text", ["max-hold-age: soon\n", "zookeeper-timeout: soon\n", "labels: [{name: a, min-ready: x}]\n"]
)
def test_not_taken(tmp_path: Path, text: str) -> None:
    """With these daemons of Nodepool 11 serve nothing: their main loop fails again and again."""
    file = tmp_path / "f.yaml"
    file.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^{file}:3: "):
        load_config(str(file))


def test_null_as_a_zone_in_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(HEAD + LABELS + cloud(pool=", availability-zones: [null]"), encoding="utf-8")
    load_config(str(file))
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "expected a text, got nothing (null); correct it, a daemon takes it as no zone, so that the cloud chooses one"
    )


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (keys.WHOLE, 3, None),
        (keys.WHOLE, "three", None),
        (keys.WHOLE, "-3", -3),
        (keys.WHOLE, 2.9, 2),
        (keys.WHOLE, [1], None),
        (keys.WHOLE, float("inf"), None),
        (keys.Whole(instead=0), "many", 0),
        (keys.Whole(instead=0), [1], 0),
        (keys.Whole(instead=0), float("nan"), 0),
        (keys.Whole(instead=0), "3", 3),
        (keys.Whole(instead=0), 3, None),
        (keys.Whole(instead=0), None, keys.NOT_GIVEN),
        (keys.Whole(0, 9, keys.NOT_GIVEN), 10, keys.NOT_GIVEN),
        (keys.Whole(0, 9, keys.NOT_GIVEN), -1, 0),
        (keys.PORT, 0, None),
        (keys.PORT, "22", 22),
        (keys.Number(0, more=True), 0, keys.NOT_GIVEN),
        (keys.SECONDS, "1.5", 1.5),
        (keys.SECONDS, 2, None),
        (keys.FLAG, "false", True),
        (keys.FLAG, 0, False),
        (keys.FLAG, True, None),
        (keys.TEXT, 7, "7"),
        (keys.TEXT, "", None),
        (keys.TEXT, True, "true"),
        (keys.FILLED_TEXT, True, None),
        (keys.FILLED_TEXT, "", keys.NOT_GIVEN),
        (keys.TEXTS, "a", ["a"]),
        (keys.TEXT, None, keys.NOT_GIVEN),
        (keys.TEXT.or_null(), None, None),
        (keys.ANY_MAPPING, 3, None),
    ],
)
def test_values(kind: keys.ValueType, value: Any, expected: Any) -> None:
    """What a value means that is not of its type; a text is true, whatever it says, as in Nodepool 11."""
    reading = read_as(kind, value)
    assert reading is None if expected is None else isinstance(reading, Reading) and reading.value == expected
