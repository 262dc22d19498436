# SPDX-License-Identifier: Apache-2.0
"""What a file means, and what is found in it: defaults, what images inherit, the secure file, what daemons tolerate.

``tolerated.txt`` was made with the released package 11.0.0: it loads each of these files, and means by it what stands
in the third column. Its ``config-validate`` refuses those with T, or a daemon leaves something out.
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml

from nodepool.config.assembly import validate_here
from nodepool.config.loader import load_config, load_images, load_zookeeper
from nodepool.config.objects import Config, DiskImage
from nodepool.config.problems import MAX_REPORTED, Problem, key_text, show
from nodepool.config.schema import Reading, read_as
from nodepool.config.sections import wanted_images
from nodepool.config.zookeeper import ZooKeeperServer, ZooKeeperSettings, refuse_bad_tls_files
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.model import config_keys as keys
from nodepool.plan.images import WantedUpload
from nodepool.tracing.spans import OtlpSettings
from nodepool.version import how_to_install
from tests.support.certificates import make_certificates
from tests.support.tables import rows
from tests.unit.config.conftest import HEAD, Files
from tests.unit.test_samples import EDITOR

CLOUD: Final = "providers: [{name: c, cloud: c, "
#: Where the texts of the table stand, by name.
PLACES: Final = {
    "top": "TEXT",
    "labels": "labels: [TEXT]",
    "images": "diskimages: [TEXT]",
    "tenants": "tenant-resource-limits: [TEXT]",
    "provider": f"diskimages: [{{name: i}}]\n{CLOUD}TEXT}}]",
    "pool": f"labels: [{{name: a}}]\ndiskimages: [{{name: i}}, {{name: j}}]\n"
    f"{CLOUD}diskimages: [{{name: i}}], pools: [{{name: p, TEXT}}]}}]",
    "pod": "labels: [{name: a}]\nproviders: [{name: c, driver: kubernetes, pools: [{name: p, labels: "
    "[{name: a, type: pod, TEXT}]}]}]",
    "pools": "labels: [{name: a}, {name: b}]\nproviders: [{name: c, driver: static, pools: [TEXT]}]",
}
PLACES["hosts"] = PLACES["pools"].replace("TEXT", "{name: p, nodes: [TEXT]}")
PLACES["host"] = PLACES["hosts"].replace("TEXT", "{name: h, labels: [a], host-key: k, TEXT}")
TOLERATED: Final = (Path(__file__).parent / "tolerated.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("row", TOLERATED, ids=lambda row: " ".join(row.split())[:60])
def test_tolerated(files: Files, caplog: pytest.LogCaptureFixture, row: str) -> None:
    """G-4, and reference/configuration 1: a warning with file and line; the same as the file that is meant."""
    place, written, meant, note = (column.strip() for column in row.split(" | "))
    text = PLACES[place].replace("TEXT", written).replace("\\n", "\n")
    (problem,) = files.problems(text)
    assert f"{problem.severity.name[0]} {problem.key}".endswith(note[2:])
    assert problem.severity.name[0] == note[0]
    assert problem.line
    found = files.load(text)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert not any(isinstance(section, UnavailableProviderConfig) for section in found.providers.values())
    assert files.load(text).providers == found.providers
    assert_same(found, files.load(PLACES[place].replace("TEXT", meant)))


def assert_same(one: Config, other: Config) -> None:
    """But for the checksums of the files."""
    one.digest = other.digest = ""
    assert one == other
    for name, label in one.labels.items():
        assert [pool.name for pool in label.pools] == [pool.name for pool in other.labels[name].pools]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        *((keys.WHOLE, *row) for row in ((3, None), ("three", None), ("-3", -3), (2.9, 2), ([1], None))),
        (keys.WHOLE, float("inf"), None),
        *((keys.Whole(instead=0), *row) for row in (("many", 0), ([1], 0), (float("nan"), 0), ("3", 3), (3, None))),
        (keys.Whole(instead=0), None, keys.NOT_GIVEN),
        *((keys.Whole(0, 9, keys.NOT_GIVEN), *row) for row in ((10, keys.NOT_GIVEN), (-1, 0))),
        *((keys.PORT, *row) for row in ((0, None), ("22", 22))),
        (keys.Number(0, more=True), 0, keys.NOT_GIVEN),
        *((keys.SECONDS, *row) for row in (("1.5", 1.5), (2, None))),
        *((keys.FLAG, *row) for row in (("false", True), (0, False), (True, None))),
        *((keys.TEXT, *row) for row in ((7, "7"), ("", None), (True, "true"), (None, keys.NOT_GIVEN))),
        *((keys.FILLED_TEXT, *row) for row in ((True, None), ("", keys.NOT_GIVEN))),
        (keys.TEXTS, "a", ["a"]),
        (keys.TEXT.or_null(), None, None),
        (keys.ANY_MAPPING, 3, None),
    ],
)
def test_values(kind: keys.ValueType, value: Any, expected: Any) -> None:
    """What a value means that is not of its type; a text is true, whatever it says, as in Nodepool 11."""
    reading = read_as(kind, value)
    assert reading is None if expected is None else isinstance(reading, Reading) and reading.value == expected


@rows(__file__, "test_meaning")
def test_meaning(files: Files, monkeypatch: pytest.MonkeyPatch, text: str, values: str) -> None:
    """G-4: paths of attributes and keys with their values; a set is a list. Loading it again gives an equal one."""
    monkeypatch.setenv("NODEPOOL_PORT", "17")
    config = files.load(text)
    expected = yaml.safe_load(values)
    start = config.diskimages if text.startswith("diskimages") else config
    assert {path: at(start, path) for path in expected} == expected
    assert config == files.load(text)


def at(value: Any, path: str) -> Any:
    for part in path.split("."):
        known = value[int(part)] if isinstance(value, list) else value.get(part) if isinstance(value, dict) else None
        value = getattr(value, part) if known is None else known
    return sorted(value) if isinstance(value, set) else value


@rows(__file__, "test_tracing")
def test_tracing(files: Files, section: str, settings: list[Any] | None) -> None:
    """TR-1."""
    assert files.load(section).tracing_settings() == (settings and OtlpSettings(*settings))


#: Main file, secure file -> what is wrong with them, or what they mean.
IMAGES: Final = "diskimages: [{name: p, env-vars: {A: '1', B: '1'}}, {name: c, parent: p}]"


def test_secrets_of_images(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """G-15: merged into the image's, the secure value wins; only into the image that is named. No secret is shown."""
    images = files.load(IMAGES, "diskimages: [{name: p, env-vars: {B: '2', C: 4711}, pause: true}]").diskimages
    assert images["p"].env_vars == {"A": "1", "B": "2", "C": "4711"}
    assert images["c"].env_vars == {"A": "1", "B": "1"}
    assert images["p"].pause is False
    assert "s.yaml:1: diskimages[0].env-vars.C: expected a text, got something else" in caplog.text
    assert "4711" not in caplog.text


@pytest.mark.parametrize("text", ["", "# nothing\n", "~\n", "{}", "labels: 7\nproviders: 8\nanything: 9\n"])
def test_secure_file_without_meaning(files: Files, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """An empty file is fine; other keys do not count."""
    assert set(files.load(IMAGES, text).diskimages) == {"p", "c"}
    assert caplog.text == ""


@rows(__file__, "test_problems_of_two_files")
def test_problems_of_two_files(files: Files, main: str, secure: str, lines: list[str]) -> None:
    told = files.refused(main, secure)
    assert len(told) == len(lines)
    for line, begin in zip(told, lines, strict=True):
        assert line.startswith(begin)


@rows(__file__, "test_zookeeper_in_the_secure_file")
def test_zookeeper_in_the_secure_file(files: Files, main: str, secure: str) -> None:
    """G-15: servers and TLS of the secure file replace the others, which are not judged; its timeout is ignored."""
    paths = files.write(main, secure)
    for settings in (load_zookeeper(*paths), load_config(*paths)):
        assert settings.zookeeper_servers == [ZooKeeperServer("zk")]
        assert (settings.zookeeper_tls_ca, settings.zookeeper_timeout) == ("a", 3.0)


def test_empty_in_the_secure_file(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """It counts as not given."""
    assert files.load("", "zookeeper-tls:\n").zookeeper_tls_ca == "a"
    assert "zookeeper-tls: there is nothing below it" in caplog.text


def test_rest_may_be_wrong(files: Files) -> None:
    """Commands about nodes need ZooKeeper only; commands about images look at no provider."""
    text = "diskimages: [{name: debian}]\nproviders: [{name: p, driver: none-such}, 7]\n"
    servers = (
        "zookeeper-servers: [{host: a, port: 1, chroot: /x}, {host: '::1', chroot: ''}, {host: b, chroot: null}]\n"
    )
    path, _ = files.write(f"{servers}zookeeper-tls: {{cert: c, key: k, ca: a}}\n{text}")
    assert load_zookeeper(path).zookeeper_servers == [ZooKeeperServer(*one) for one in (("a", 1, "/x"), ("::1",), "b")]
    images = load_images(path)
    assert (list(images.diskimages), images.providers) == (["debian"], {})
    assert len(images.zookeeper_servers) == 3
    path, _ = files.write("diskimages: 7\nlabels: 3")
    assert load_zookeeper(path).zookeeper_servers
    with pytest.raises(ConfigError, match="diskimages"):
        load_images(path)


def test_wanted_images() -> None:
    """B-2, B-13, R-12: what builders make of it; providers that cannot be used, or have no images, are not there."""
    config = Config()
    config.diskimages = {name: DiskImage(name) for name in ("base", "debian")}
    config.diskimages["base"].abstract = True
    config.diskimages["debian"].image_types = {"qcow2"}

    def provider(image_type: str | None, manages: bool = True, **pauses: bool) -> Any:
        uses = {name: SimpleNamespace(name=name, pause=pause) for name, pause in pauses.items()}
        return SimpleNamespace(manage_images=manages, image_type=image_type, diskimages=uses)

    config.providers = {"a": provider("raw", debian=True), "b": provider("raw"), "c": provider(None, debian=True)}
    config.providers["d"] = provider("raw", manages=False)
    wanted = wanted_images(config)
    assert wanted.providers == {"a": {"debian": WantedUpload("raw", paused=True)}, "b": {}}
    (debian,) = wanted.images.values()
    assert debian.formats == {"qcow2"}
    config.diskimages["debian"].rebuild_age = 5
    assert wanted_images(config).images["debian"].settings == debian.settings
    config.diskimages["debian"].env_vars = {"A": "2"}
    assert wanted_images(config).images["debian"].settings != debian.settings, "worth another attempt"


def test_a_list_that_others_have_by_an_alias(files: Files) -> None:
    """A label that is taken out of the pool of one provider stays in the list of another one."""
    config = files.load(
        "labels: [{name: small}, {name: big}]\ndiskimages: [{name: i}, {name: j}]\nproviders:\n"
        "- {name: p, cloud: c, diskimages: [{name: i}], pools: [{name: a, labels: &labels ["
        "{name: small, diskimage: i, min-ram: 1}, {name: big, diskimage: j, min-ram: 1}]}]}\n"
        "- {name: q, cloud: c, diskimages: [{name: i}, {name: j}], pools: [{name: a, labels: *labels}]}\n"
    )
    assert [list(config.providers[name].pools["a"].labels) for name in "pq"] == [["small"], ["small", "big"]]


def test_siblings_share_nothing(files: Files) -> None:
    images = files.load(
        "diskimages: [{name: p, env-vars: {A: '1'}, elements: [a], formats: [raw], keep-formats: [raw],"
        " metadata: {x: 1}}, {name: a, parent: p}, {name: b, parent: p}]"
    ).diskimages
    before = {name: repr(vars(images[name])) for name in "bp"}
    images["a"].env_vars["B"] = images["a"].metadata["y"] = "2"
    for values in (images["a"].elements, images["a"].keep_formats):
        values.append("b")
    images["a"].image_types.add("vhd")
    assert {name: repr(vars(images[name])) for name in "bp"} == before


# -- what is found in a file: each problem is noted in the line where it belongs (reference/configuration 1 to 6, 11)
#
# ``#! T key: text`` is a problem of the severity TOLERATED; its text begins so. Nothing else may be found. A daemon
# refuses the file for E (error) and I (incomplete), leaves the provider out for P, and only warns of the others.
# ``files_of_a_line.txt`` has a file in each line, ``files.txt`` in each paragraph.


HERE: Final = Path(__file__).parent
TEXTS: Final = [
    *(HERE / "files_of_a_line.txt").read_text(encoding="utf-8").strip().splitlines(),
    *(HERE / "files.txt").read_text(encoding="utf-8").strip().split("\n\n"),
]
NOTE: Final = re.compile(r"\s#! ")
#: First letters of severities that a daemon refuses a file for.
REFUSED: Final = "EI"


def letter(problem: Problem) -> str:
    return problem.severity.name[0]


def notes(text: str) -> list[tuple[int, str]]:
    """Line and text of each."""
    lines = enumerate(text.splitlines(), 1 if "zookeeper-servers:" in text else 3)
    return [(number, note.strip()) for number, line in lines for note in NOTE.split(line)[1:]]


@pytest.mark.parametrize("text", TEXTS)
def test_problems(files: Files, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """WP-66, WP-67, WP-87, WP-103: every problem is found; validator, daemon and commands say the same."""
    found = files.problems(text)
    wanted = notes(text)
    told = [(one.line or 1, f"{letter(one)} {one.key}: {one.message}") for one in found]
    assert len(told) == len(wanted), told
    for one, other in zip(sorted(told), sorted(wanted), strict=True):
        assert (one[0], one[1][: len(other[1])]) == other
    caplog.clear()
    errors = [str(one) for one in found if letter(one) in REFUSED]
    if errors:
        for load in (load_config, load_zookeeper) if all("zookeeper-" in line for line in errors) else (load_config,):
            with pytest.raises(ConfigError) as caught:
                load(str(files.main))
            assert str(caught.value).splitlines() == errors
    else:
        load_config(str(files.main))
        logged = {(record.levelno, record.getMessage()) for record in caplog.records}
        levels = {"P": logging.ERROR}
        others = {(levels.get(letter(one), logging.WARNING), str(one)) for one in found if letter(one) not in REFUSED}
        assert logged == others


#: What a schema for editors can express. It knows no values of texts, and not what several keys mean together.
OF_TYPES: Final = re.compile(
    r"unknown key|expected (a text|one of|true or false|a (whole )?number,|a mapping|a list of mappings)"
)


@pytest.mark.parametrize("text", TEXTS)
def test_editors(text: str) -> None:
    """What the schema refuses has a problem. What has one is refused by it, as far as a schema can express that."""
    seen = [str(error.message) for error in EDITOR.iter_errors(yaml.safe_load(text) or {})]
    found = [note.partition(": ")[2] for _, note in notes(text)]
    assert found or not seen
    assert seen or not any(map(OF_TYPES.match, found)), found


@rows(__file__, "test_columns")
def test_columns(files: Files, text: str, line: str) -> None:
    assert [one for one in files.here(text) if one.startswith(line)]


def test_files_of_this_machine(files: Files) -> None:
    """G-17: one that is missing may be on another machine; a daemon, and one that is here, is right or wrong."""
    made = make_certificates(files.directory)
    head = "zookeeper-servers: [{host: zk}]\nzookeeper-tls:\n"
    names = f"  ca: {made.ca}\n  cert: {made.client_cert}\n"
    assert files.here(f"{head}{names}  key: {made.client_key}\n") == []
    refuse_bad_tls_files(load_zookeeper(str(files.main)))
    (told,) = files.here(f"{head}{names}  key: {made.ca}\n")
    assert told.startswith("error: f.yaml:5:3: zookeeper-tls.key: ")
    (told,) = files.here(f"{head}{names}  key: /no/k\n")
    assert told.startswith("warning: f.yaml:5:3: zookeeper-tls.key: there is no file /no/k;")
    old = load_zookeeper(str(files.main))
    with pytest.raises(ConfigError, match=r"f\.yaml:5: zookeeper-tls\.key: there is no file /no/k;"):
        refuse_bad_tls_files(old)
    new = load_zookeeper(files.write(f"\n{head}{names}  key: /no/k\n")[0])
    assert new.tls_places != old.tls_places
    assert new == old, "a line is no change of the configuration"
    refuse_bad_tls_files(ZooKeeperSettings())


def test_secure_file_of_the_validator(files: Files) -> None:
    """Without it what is missing is a warning here, and with it a problem as for a daemon."""
    assert [one.partition(":")[0] for one in files.here("# zookeeper-servers: none\nlabels: []")] == ["warning"] * 2
    assert files.problems("# zookeeper-servers: none\nlabels: []", HEAD) == []
    told = files.here("# zookeeper-servers: none\nlabels: []", HEAD.splitlines()[0])
    assert [one.partition(": required")[0] for one in told] == ["incomplete: f.yaml: zookeeper-tls"]
    assert "-s" not in told[0]
    (problem,) = validate_here(files.write(HEAD)[0], str(files.directory / "none"))
    assert files.short(str(problem)) == "none: no such file"


def test_clouds_yaml(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud that is not in it, and no such file."""
    clouds = files.directory / "clouds.yaml"
    clouds.write_text("clouds: {other: {auth: {}}}\n", encoding="utf-8")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    text = "providers:\n- name: p\n  driver: openstack\n  cloud: mine\n  pools: []\n"
    place = "warning: f.yaml:6:3: providers[0].cloud: "
    assert files.here(text)[-1].startswith(f"{place}clouds.yaml has no cloud 'mine' (it has: other)")
    clouds.unlink()
    assert files.here(text)[-1].startswith(f"{place}there is no clouds.yaml with the cloud 'mine'")


@pytest.mark.parametrize("key", ["password", "api-token", "client-secret", "api-key", "env-vars"])
def test_no_secret_is_shown(key: str) -> None:
    assert show("4711", ["a", key]) == "something else"


@rows(__file__, "test_one_line_whatever_it_is")
def test_one_line_whatever_it_is(path: list[Any], value: object, expected: str) -> None:
    assert f"{key_text(path)}: {show(value)}" == expected


def test_tracing_is_not_installed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """TR-1: only when it is enabled; a daemon refuses it, too."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    files.load("tracing: {protocol: grpc}")
    (line,) = files.refused("tracing:\n  enabled: true", strict=False)
    assert line.startswith("f.yaml:4: tracing.enabled: opentelemetry")
    assert how_to_install("tracing") in line


def test_many_problems(files: Files) -> None:
    """A hopeless file does not flood the log, and the cost of reporting grows with the file, not with its square."""
    text = "labels:\n" + "- 7\n" * 20_000
    assert len(files.refused(text, strict=False)) == MAX_REPORTED + 1
    assert len([problem for problem in files.problems(text) if "got 7" in str(problem)]) == 20_000
    text = f"labels: [{'7, ' * 20_000}]"
    assert len([problem for problem in files.here(text) if "got 7" in problem]) == 20_000
