# SPDX-License-Identifier: Apache-2.0
"""``nodepool``: the command line for operators (reference/commands 2).

First every command, with its arguments and options, under the headings of the help. Then the parser that is made of
them, and how a command is run. A command is imported when it is run: the help needs none of them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from nodepool import log_names, logconfig
from nodepool.cmd import app
from nodepool.cmd.app import HOST, PROBLEMS, absolute_path, checked, duration, moment, some_seconds
from nodepool.listing.nodes import ALLOCATED, full_id, names_in, states_in
from nodepool.listing.table import FORMATS
from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.image import IMPORTED_FORMATS
from nodepool.model.status import MODES, Mode

T = TypeVar("T")

PROG: Final = "nodepool"

# What commands are declared with.

#: Parser or group -> gets an argument, or several.
Part = Callable[[Any], object]


class Command(NamedTuple):
    """One command: ``hold`` is the function ``do_hold`` of its module, which gets the options and returns the status.

    :param module: of `nodepool.cmd`.
    :param text: its line in the help of the program.
    :param settings: of its parser.
    """

    module: str
    name: str
    text: str
    parts: Sequence[Part]
    settings: dict[str, Any]

    @property
    def names(self) -> Sequence[str]:
        return [self.name, *self.settings.get("aliases", ())]

    @property
    def shown(self) -> str:
        """Its names in the help of the program."""
        return " ".join([self.name, *(f"({alias})" for alias in self.names[1:])])

    @property
    def function(self) -> Callable[[argparse.Namespace], int]:
        module = importlib.import_module(f"nodepool.cmd.{self.module}")
        found: Callable[[argparse.Namespace], int] = getattr(module, f"do_{self.name.replace('-', '_')}")
        return found


def command(place: str, text: str, *parts: str | Part, **settings: Any) -> Command:
    """Declare a command.

    :param place: module and name, with a dot between them; the others: see `Command`.
    :param parts: examples, which are texts (without one it is the name alone); then arguments and options.
    """
    module, _, name = place.partition(".")
    examples = [part for part in parts if isinstance(part, str)] or [f"{PROG} {name}"]
    settings.setdefault("description", f"{text[0].upper()}{text[1:]}.")
    settings.setdefault("epilog", f"example{'s' * (len(examples) > 1)}: {'; '.join(examples)}")
    return Command(module, name, text, [part for part in parts if not isinstance(part, str)], settings)


def argument(names: str, text: str, **settings: Any) -> Part:
    """An argument or an option; ``names``: with blanks between them."""
    return lambda parser: parser.add_argument(*names.split(), help=text, **settings)


def option(names: str, value: str, text: str, **settings: Any) -> Part:
    """An option with a value."""
    return argument(names, text, metavar=value, **settings)


def flag(names: str, text: str, **settings: Any) -> Part:
    """An option without a value."""
    return argument(names, text, action="store_true", **settings)


def given(**values: Any) -> Part:
    """Values that the command has without an option."""
    return lambda parser: parser.set_defaults(**values)


def together(*parts: Part) -> Part:
    """Several as one."""
    return lambda parser: _fill(parser, parts)


def one_of(*parts: Part) -> Part:
    """Options of which one may be given."""
    return lambda parser: _fill(parser.add_mutually_exclusive_group(), parts)


def group(title: str, *parts: Part, description: str | None = None) -> Part:
    """Options with a heading of their own."""
    return lambda parser: _fill(parser.add_argument_group(title, description), parts)


def _fill(parser: Any, parts: Iterable[Part]) -> None:
    for part in parts:
        part(parser)


# Arguments and options that several commands have.

IMAGE: Final = argument("image", "image name")
NODES: Final = argument("ids", "node id, with or without zeros before it", metavar="ID", nargs="+", type=full_id)
PROVIDER: Final = argument("provider", "provider name", metavar="PROVIDER")
SOME_PROVIDER: Final = argument("provider", "provider name (default: all)", metavar="PROVIDER", nargs="?")
FORCE: Final = flag("--force", "do not ask")


def form(*forms: str, more: str = "") -> Part:
    """``--format``: the first form is the default. ``more``: the end of the help text."""
    text = f"how to print the result (default: %(default)s){more}"
    return argument("-o --format", text, choices=forms, default=forms[0])


WATCH: Final = flag("-w --watch", "draw it again and again on a terminal, until Ctrl-C")
#: Of a listing: one that has several tables has only the first.
FORM: Final = form(*FORMATS, more="; wide: with more columns; name: only the first column")
_OUTPUT: Final = (
    FORM,
    option("--sort", "COLUMN", "sort by a column, named as in JSON; --sort=-COLUMN: the other way round"),
    option("--columns", "A,B", "show these columns, named as in JSON", type=names_in, default=[]),
    argument("--no-headers", "print only rows, and no box", dest="headers", action="store_false"),
)
OUTPUT: Final = group("output", *_OUTPUT)


def listing(place: str, text: str, *parts: str | Part, **settings: Any) -> Command:
    """Declare a command that shows a listing, once or until Ctrl-C; see `command`."""
    return command(place, text, *parts, group("output", *_OUTPUT, WATCH), **settings)


def chosen(known: Sequence[str], age: str, **more: str) -> Part:
    """Options that choose nodes or requests.

    :param known: states that there are.
    :param age: since when ``--older-than`` counts, for the help text.
    :param more: names and help texts of further ones.
    """
    some = partial(argument, metavar="A,B", type=names_in, default=[])
    ids = argument("ids", "only these", metavar="ID", nargs="*", type=full_id)
    options = group(
        "what is shown",
        some("--state", f"in one of these states: {', '.join(known)}", type=checked(partial(states_in, known=known))),
        some("--label", "with one of these labels, e.g. gpu-*"),
        some("--provider", "of these providers"),
        *(some(f"--{name}", text) for name, text in more.items()),
        some("--tenant", "of these tenants"),
        option("--older-than", "TIME", f"{age} for longer, e.g. 90s, 15m, 1h30m", type=duration),
        description="names may be patterns; several are divided by commas",
    )
    return together(ids, options)


def ended(what: str) -> Part:
    """``--for`` and ``--until``, of which one may be used. ``what``: happens at the end, for the help text."""
    lasts, then = f"{what} after this time, e.g. 90m, 8h, 2d", f"{what} then: 18:30, 2026-12-24 or 2026-12-24T18:30"
    return one_of(
        option("--for", "TIME", lasts, dest="lasts", type=duration), option("--until", "MOMENT", then, type=moment)
    )


#: Kinds that hold requests back, and those that can be drained.
PAUSED_KINDS: Final = tuple(kind for kind, modes in MODES.items() if Mode.PAUSE in modes)
DRAINED_KINDS: Final = tuple(kind for kind, modes in MODES.items() if Mode.DRAIN in modes)


def begins(mode: Mode, kinds: Sequence[str]) -> Part:
    """What the commands have that take something out of service."""
    needed, even = mode is Mode.QUARANTINE, "even if no running launcher knows it; then say what it is, too"
    reason = option("--reason", "TEXT", "why, for everybody who asks", default="", required=needed)
    return together(given(mode=mode), subject(kinds), reason, ended("end it"), flag("--force", even))


def ends(kinds: Sequence[str]) -> Part:
    """What the commands have that take something back into service."""
    return together(given(mode=None), subject(kinds, "as it was quarantined"))


def subject(kinds: Sequence[str], host: str = "<user>@<host>:<port>, or the host's name alone") -> Part:
    """What is taken out of service; ``host``: the help text of a host."""
    if kinds == HOST:
        return together(given(kinds=kinds), argument("subject", host, metavar="HOST", nargs=1))
    text = f"its name; before it may stand what it is: {', '.join(kinds)}. A pool is <provider>/<pool>"
    return together(given(kinds=kinds), argument("subject", text, metavar="NAME", nargs="+"))


# The commands, under the headings of the help.

_EXPLAIN: Final = """\
examples:
  nodepool explain 200-0000000123    why a request waits or failed, and what would help
  nodepool explain 0000000042        for whom a node is, and what is done with it
  nodepool explain debian-large      who serves a label
  nodepool explain cloud-1           how a provider is; cloud-1/main for one pool of it
  nodepool explain 192.0.2.17        whose node that is; also a host, an image, a launcher, a tenant
  nodepool explain image debian-12   what it is may stand before the name
"""

#: Which daemon is asked for its health.
_DAEMON: Final = {"dest": "kind", "action": "store_const", "default": "launcher"}

LOOK: Final = (
    command(
        "overview.status",
        "show what is wrong, what waits, and how much room there is",
        flag(
            "--fail-on-problems",
            f"exit with status {PROBLEMS} if a request waits too long or something needs attention",
        ),
        form("table", "json"),
        WATCH,
    ),
    command(
        "overview.explain",
        "explain anything: why a request waits, whose an address is, why an image is not built",
        argument("name", "id, name or address; before it may stand what it is", metavar="NAME", nargs="+"),
        form("table", "json"),
        epilog=_EXPLAIN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ),
    listing(
        "nodes.list",
        "list nodes",
        "nodepool list --state in-use --label 'gpu-*' --older-than 2h -o wide",
        flag("--detail", "show every column of Nodepool 11"),
        # An abbreviation of Nodepool 11: now there is --debug, too.
        flag("--d --de", argparse.SUPPRESS, dest="detail"),
        chosen((*states.NODE_STATES, ALLOCATED), "in its state", pool="of these pools: POOL or PROVIDER/POOL"),
        aliases=["nodes"],
        description="Lists nodes: their state, what they are for, and who has them.",
    ),
    listing(
        "nodes.request-list",
        "list node requests",
        "nodepool request-list --state requested --older-than 10m --sort=-age_seconds",
        chosen(states.REQUEST_STATES, "waiting"),
        aliases=["requests"],
        description="Lists node requests: for which job each is, how old it is, and what it waits for.",
    ),
    listing(
        "overview.label-list",
        "list labels: are they served, in which pools, how many nodes are ready, how many requests wait",
        "nodepool label-list -o name",
        aliases=["labels"],
        description="Lists the labels that running launchers serve or that requests wait for. A request for a label "
        "that no launcher serves fails.",
    ),
    listing(
        "overview.providers",
        "list providers and their pools: state, since when, last error, most used limit",
        "nodepool providers cloud-1 --limits",
        argument("provider", "provider, or <provider>/<pool> (default: all)", metavar="PROVIDER", nargs="?"),
        flag("--limits", "list each limit instead: used, used by others, free"),
    ),
    listing(
        "overview.hosts",
        "list static hosts: up or down, since when, why, and their nodes",
        "nodepool hosts --down",
        flag("--down", "only those that are not up"),
    ),
    listing("overview.launchers", "list launchers: version, configuration, state, pools"),
    listing(
        "overview.tenants",
        "list what tenants use of their limits",
        argument("tenant", "tenant name (default: all)", metavar="TENANT", nargs="?"),
    ),
    command(
        "overview.events",
        "list what happened: failures, outages, hosts that went, reloads, maintenance",
        "nodepool events --since 1h -f",
        flag("-f --follow", "go on until Ctrl-C, a line for each event"),
        option("--since", "AGE", "only events that are not older, e.g. 15m, 1h or 2d (default: all)", type=duration),
        option("--subject", "TEXT", "only events about this, e.g. cloud-1, node or 200-0000000001"),
        OUTPUT,
    ),
    command(
        "providers.info",
        "show what ZooKeeper knows of a provider",
        *("nodepool info cloud-1", "nodepool providers cloud-1"),
        PROVIDER,
        group("output", FORM),
        description="Shows the images and the nodes of a provider that ZooKeeper has records of.",
    ),
    command(
        "health.health",
        "say whether the daemon on this machine works",
        *("nodepool health --builder", "nodepool health --url http://127.0.0.1:8005/health/live"),
        one_of(
            argument("--launcher", "ask nodepool-launcher (the default)", **_DAEMON, const="launcher"),
            argument("--builder", "ask nodepool-builder", **_DAEMON, const="builder"),
            argument("--web", "ask nodepool-web", **_DAEMON, const="web"),
        ),
        flag("--live", "ask only whether it is alive, not whether it is ready for work"),
        option("--url", "URL", "ask this address, not the one of the configuration"),
        option(
            "--timeout",
            "SECONDS",
            "how long to wait for an answer (default: %(default)g)",
            type=some_seconds,
            default=10.0,
        ),
        description="Asks the daemon of this machine at the web port of its configuration. A builder, and a launcher "
        "without a web server, are looked for in ZooKeeper, where they register as long as they run. Prints one line. "
        "Exit status 0: it works; 1: it does not.",
    ),
)

CHANGE: Final = (
    command(
        "nodes.hold",
        "keep nodes, e.g. to look at them",
        "nodepool hold 0000000042 --reason 'disk full, bug 17' --for 2d",
        NODES,
        option("--reason", "TEXT", "why; it is shown by list and explain"),
        ended("the launchers delete the nodes"),
        OUTPUT,
        description="Keeps nodes in any state: no request gets them, and launchers delete them only at the end.",
    ),
    command(
        "nodes.delete",
        "delete nodes",
        "nodepool delete 0000000042 0000000043 --wait",
        NODES,
        one_of(
            flag("--now", "delete the nodes in the foreground, with the provider's driver"),
            # An abbreviation of Nodepool 11: now there is --no-headers, too.
            flag("--n --no", argparse.SUPPRESS, dest="now"),
            flag("--wait", "wait until the nodes do not exist any more"),
        ),
        OUTPUT,
        description="Asks the launchers to delete nodes. A node of a static host is registered again afterwards.",
    ),
    command(
        "nodes.request",
        "ask for nodes without Zuul, use them, and give them back",
        *("nodepool request debian-small", "nodepool request debian-small debian-large --hold 10m -o json"),
        argument("labels", "label of a node; several make one request", metavar="LABEL", nargs="+"),
        option("--hold", "TIME", "give the nodes back after this time, e.g. 10m", type=duration),
        option("--timeout", "TIME", "end if there are no nodes after this time (default: never)", type=duration),
        option("--tenant", "NAME", "the request counts for this tenant (default: for none)"),
        form("table", "json"),
        description="Asks for nodes as Zuul does. Shows what the request waits for, locks the nodes, prints how to "
        "reach them, and gives them back at Enter, Ctrl-C or the end of --hold. The request ends with the command.",
    ),
    command(
        "maintenance.pause",
        "let a provider, pool, label or launcher take nothing new",
        "nodepool pause provider cloud-1 --reason 'upgrade of the cloud' --for 2h",
        begins(Mode.PAUSE, PAUSED_KINDS),
    ),
    command(
        "maintenance.drain",
        "let a launcher finish what it does and end; of a provider or pool the same as pause",
        "nodepool drain launcher host-1 --reason 'new kernel'",
        begins(Mode.DRAIN, DRAINED_KINDS),
    ),
    command("maintenance.resume", "end a pause or a drain", "nodepool resume provider cloud-1", ends(PAUSED_KINDS)),
    command(
        "maintenance.quarantine",
        "take a static host out of service: it is held after its job",
        "nodepool quarantine host-7 --reason 'disk errors'",
        begins(Mode.QUARANTINE, HOST),
    ),
    command("maintenance.release", "end the quarantine of a static host", "nodepool release host-7", ends(HOST)),
    listing("maintenance.maintenance", "list what is paused, drained or quarantined: by whom, why, until when"),
)

IMAGES: Final = (
    listing("images.images", "list images: newest build, uploads of each provider, state"),
    listing(
        "images.image-list",
        "list the uploads of images to providers",
        "nodepool image-list --detail",
        flag("--detail", "show what each upload is used for, and how far it is"),
    ),
    listing(
        "images.dib-image-list",
        "list the builds of images",
        "nodepool dib-image-list --detail",
        flag("--detail", "show how far each build is, how long it took, and which nodes use it"),
        aliases=["builds"],
    ),
    listing("images.image-status", "list pauses of images, and builds that were asked for"),
    command(
        "images.image-build",
        "ask for a build of an image",
        "nodepool image-build debian-12 --wait",
        IMAGE,
        flag("--wait", "show how far it is, and end with the build"),
    ),
    command(
        "images.image-promote",
        "let a provider use the candidate of an image for all nodes",
        "nodepool image-promote cloud-1 debian-12",
        PROVIDER,
        argument("image", "image name", metavar="IMAGE"),
    ),
    command(
        "images.image-import",
        "make a build of an image that another tool made",
        "nodepool image-import debian-12 --file /srv/images/debian-12.qcow2 --wait",
        IMAGE,
        one_of(
            argument("--file", "file on the host of a builder", type=absolute_path),
            option("--url", "URL", "address with https; it needs --sha256"),
        ),
        option("--sha256", "SUM", "checksum of the file, 64 hexadecimal digits"),
        argument("--format", "format of the file (default: as its name and its bytes say)", choices=IMPORTED_FORMATS),
        flag("--wait", "show how far it is, and end with the import"),
    ),
    command(
        "images.image-rollback",
        "try the candidate of an image no more, or let a provider use the upload before the present one again",
        "nodepool image-rollback cloud-1 debian-12",
        PROVIDER,
        argument("image", "image name", metavar="IMAGE"),
    ),
    command("images.image-pause", "build an image no more", "nodepool image-pause debian-12", IMAGE),
    command("images.image-unpause", "build an image again", "nodepool image-unpause debian-12", IMAGE),
    command(
        "images.image-delete",
        "delete one upload of an image from its provider",
        "nodepool image-delete --provider cloud-1 --image debian-12 --build-id ID --upload-id ID",
        argument("--provider", "provider name", required=True),
        argument("--image", "image name", required=True),
        argument("--upload-id", "number of the upload", required=True, type=full_id),
        argument("--build-id", "id of the build", required=True, type=full_id),
    ),
    command(
        "images.dib-image-delete",
        "delete a build, from disk and from all providers",
        "nodepool dib-image-delete debian-12-0f3ac1d97f0f4d5f8b4d24a4f4c0d9a1",
        argument("id", "<image>-<build id>, as dib-image-list shows it"),
    ),
    command(
        "images.image-log",
        "print the log of a build, on the host of its builder",
        "nodepool image-log debian-12 --follow",
        argument("name", "image name, for its newest build, or <image>-<build id>", metavar="NAME"),
        flag("-f --follow", "go on until the build has ended"),
    ),
    command(
        "images.alien-image-list",
        "list images in clouds that ZooKeeper does not know",
        "nodepool alien-image-list cloud-1",
        SOME_PROVIDER,
        OUTPUT,
    ),
)


CONFIGURATION: Final = (
    command(
        "configuration.config-validate",
        "check the configuration file",
        "nodepool -c nodepool.yaml config-validate --format github",
        form("text", "json", "github", "junit", "zuul", more="; text: lines on stderr; the others: on stdout"),
        description="Reports every problem of the configuration file (-c) with its secure file (-s), as "
        "file:line:column: key: text. Contacts nothing. Exit status 1 if there is an error among them.",
    ),
    command(
        "configuration.config-diff",
        "what a reload of a changed configuration would do",
        "nodepool -c /etc/nodepool/nodepool.yaml config-diff new.yaml",
        argument("old", "the file in effect (default: that of -c)", metavar="OLD", nargs="?", type=absolute_path),
        argument("new", "the changed file", metavar="NEW", type=absolute_path),
        form("text", "json"),
        description="Compares two configuration files as a daemon does when its file changes: what has another value, "
        "which providers are started, stopped or started anew, what is refused, and what needs a restart. Nothing is "
        "contacted. Exit status 1 if the new file, or a section of it, would be refused.",
        usage="%(prog)s [OPTIONS] [OLD] NEW",
    ),
    command(
        "configuration.config-schema",
        "print the JSON Schema of the configuration file, for editors",
        "nodepool config-schema > nodepool.schema.json",
        description="Prints a JSON Schema (2020-12) of all keys, those of each driver of this installation too, with "
        "what they mean. An editor completes and checks a file by it that begins with "
        "'# yaml-language-server: $schema=nodepool.schema.json'. Contacts nothing.",
    ),
    command(
        "configuration.check",
        "look whether this machine can serve the configuration: ZooKeeper, clouds, hosts",
        "sudo -u nodepool nodepool -c /etc/nodepool/nodepool.yaml check",
        argument("providers", "only these providers (default: all)", nargs="*", metavar="PROVIDER"),
        OUTPUT,
        description="Checks the configuration files (-c, -s), connects to ZooKeeper with their certificates, and asks "
        "each provider for all that its section names: login, flavors, images, networks, security groups, key pairs, "
        "zones and quota of clouds; name, port and host keys of static hosts. Changes nothing. "
        "Exit status 1 if something failed.",
    ),
    command(
        "cli.completion",
        "print what a shell needs to complete commands and options",
        "nodepool completion bash > /etc/bash_completion.d/nodepool",
        'in ~/.zshrc, after compinit: eval "$(nodepool completion zsh)"',
        "nodepool completion fish > ~/.config/fish/completions/nodepool.fish",
        argument("shell", "the shell", choices=("bash", "zsh", "fish")),
        # What the script calls: it prints names of a kind. The last word is what is typed of the name.
        argument("--names", argparse.SUPPRESS, metavar="KIND"),
        argument("words", argparse.SUPPRESS, nargs="*"),
        description="Prints a script for a shell. It completes commands, options, their values, and names of what "
        "there is, which come from ZooKeeper, and are kept for some seconds.",
    ),
)

REPAIR: Final = (
    command(
        "providers.erase",
        "remove a provider's images and nodes from ZooKeeper; the cloud is not touched",
        "nodepool erase cloud-1",
        PROVIDER,
        FORCE,
    ),
    command(
        "providers.installation",
        "show the id of this installation; take over or delete what has the id of a lost one",
        *(f"nodepool installation{action}" for action in ("", " adopt 0123456789abcdef", " delete 0123456789abcdef")),
        argument(
            "action",
            "adopt: launchers clean up what has the id; delete: list all that has it, ask, and delete it",
            nargs="?",
            choices=("adopt", "delete"),
        ),
        argument("id", "id of the lost installation, as the log names it", nargs="?", metavar="ID"),
        FORCE,
        description="Shows the id that is on all that this installation makes in clouds, then the ids that it has "
        "adopted. After a loss of ZooKeeper, adopt takes over what has the id from before, and delete deletes it.",
    ),
    command(
        "images.export-image-data",
        "write what ZooKeeper knows of images to a file",
        "nodepool export-image-data /var/backups/nodepool-images.json",
        argument("path", "file to write", type=absolute_path),
    ),
    command(
        "images.import-image-data",
        "put what export-image-data wrote back into ZooKeeper",
        "nodepool import-image-data /var/backups/nodepool-images.json",
        argument("path", "file to read", type=absolute_path),
        flag("--replace", "overwrite records that are there and differ"),
    ),
)

#: By headings of the help.
COMMANDS: Final[Mapping[str, Sequence[Command]]] = {
    "look": LOOK,
    "change": CHANGE,
    "images": IMAGES,
    "configuration": CONFIGURATION,
    "repair": REPAIR,
}

EVERYTHING: Final = [one for members in COMMANDS.values() for one in members]

# The parser, and how a command is run.

#: Options in front of a command, and those of them that have a value.
_FLAGS, _FILES = ("--debug",), ("-c", "-s", "-l")


def make_parser(only: str | None = None, *, flat: bool = False) -> argparse.ArgumentParser:
    """The command line. Nothing heavy is imported for it.

    :param only: the command that is needed, which saves some time. None, or one that does not exist = all.
    :param flat: the help has one list of all commands, as shells show them, too.
    """
    parser = app.make_parser(PROG, "Shows and changes what Nodepool knows.")
    _add_debug_option(parser)
    parser.set_defaults(debug=False)
    places = parser.add_subparsers(title="commands", metavar="COMMAND", help="one of these:")
    meant = [one for one in EVERYTHING if only in one.names]
    for one in meant or EVERYTHING:
        made = places.add_parser(one.name, **(one.settings | ({"help": one.text} if flat else {})))
        made.set_defaults(command=one)
        # What may stand before a command may stand after it, too.
        app.add_file_options(made)
        _add_debug_option(made)
        _fill(made, one.parts)
    for heading, members in COMMANDS.items() if not meant else ():
        lines = [argparse.Action([], one.name, metavar=one.shown, help=one.text) for one in members]
        parser.add_argument_group(heading)._group_actions += lines
    return parser


def command_in(arguments: Iterable[str]) -> str | None:
    """The first word of a command line that is neither an option nor its value; None = that is not plain to see."""
    words = iter(arguments)
    for word in words:
        if word in _FILES:
            next(words, None)
        elif word not in _FLAGS:
            return None if word.startswith("-") else word
    return None


def mistake_in(arguments: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """What is wrong before the options of a command, in a line: its name, or an option of it; empty = nothing."""
    names = [name for one in EVERYTHING for name in one.names]
    word = command_in(arguments)
    if word is not None:
        near = did_you_mean(word, names) or f"; {PROG} --help lists all"
        return "" if word in names else f"there is no command {word!r}{near}"
    known = _options_of(parser)
    for number, word in enumerate(arguments):
        if word in names or word in ("-h", "--help", "--version"):
            return ""
        if not word.startswith("-") or word[:2] in known or any(option.startswith(word) for option in known):
            continue
        options = {option for one in _commands_of(parser).values() for option in _options_of(one)}
        if word.partition("=")[0] not in options:
            return f"there is no option {word}{did_you_mean(word, options)}"
        place = next((place for place in range(number, len(arguments)) if arguments[place] in names), None)
        others = [other for at, other in enumerate(arguments) if at != place]
        line = shlex.join([PROG, "COMMAND" if place is None else arguments[place], *others])
        return f"{word} is an option of commands and stands behind them: {line}"
    return ""


def _commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    found: Mapping[str, argparse.ArgumentParser] = commands.choices
    return found


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def _add_debug_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="log everything to stderr")


def set_up_logging(options: argparse.Namespace) -> None:
    """Use ``--debug``, or else ``-l``, or else log to stderr. Raises LogConfigError."""
    if options.logconfig and not options.debug:
        logconfig.load_config(options.logconfig)
        return
    config = logconfig.default_config(level="DEBUG" if options.debug else "INFO", stream="ext://sys.stderr")
    if options.debug:
        config["loggers"] = {}
        config["root"] = {"handlers": ["output"], "level": "DEBUG"}
    else:
        # A person who waits for a table need not know that a connection was made.
        config["loggers"]["nodepool.zk"] = {"level": "WARNING"}
        config["loggers"][log_names.COMPONENT_REGISTRY] = {"level": "WARNING"}
    logconfig.apply_config(config)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    :param argv: default: the arguments of the process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    parser = make_parser(command_in(arguments))
    if mistake := mistake_in(arguments, parser):
        parser.exit(2, f"{PROG}: {mistake}\n")
    options, surplus = parser.parse_known_args(arguments)
    if surplus and hasattr(options, "command") and surplus[0].startswith("-"):
        name = options.command.name
        near = did_you_mean(surplus[0].partition("=")[0], _options_of(_commands_of(parser)[name]))
        parser.exit(2, f"{PROG}: {name} has no option {surplus[0]}{near or f'; {PROG} {name} --help shows all'}\n")
    if surplus:
        parser.error(f"unrecognized arguments: {' '.join(surplus)}")
    if not hasattr(options, "command"):
        parser.print_help()
        return 1

    def work() -> int:
        set_up_logging(options)
        status: int = options.command.function(options)
        # Part of the answer: if it cannot be written, as on a full disk, the command has failed.
        print(end="", flush=True)
        return status

    return app.run(PROG, work)


def program() -> int:
    """Entry point of a process that ends with the command; returns the exit status."""
    with app.in_a_command():
        status = main()
    if status == app.INTERRUPTED:
        # A thread may be in the middle of a handshake. The end of the interpreter could crash it, and then the process.
        os._exit(status)
    return status


#: What an argument names -> kind of names, as `nodepool.cmd.overview.print_names` has it. One command's come first.
_NAMED: Final = {
    **dict.fromkeys(("explain.name", "events.subject"), "any"),
    **dict.fromkeys(("image-log.name", "dib-image-delete.id"), "build"),
    **dict.fromkeys(("request-list.ids", "requests.ids"), "request"),
    **dict.fromkeys(("quarantine.subject", "release.subject"), "host"),
    **{name: name for name in ("provider", "image", "label", "pool", "tenant")},
    **{f"{name}s": name for name in ("provider", "label")} | {"subject": "served", "ids": "node"},
}
#: How a script calls for names; a shell has its own words for the line.
_CALLS: Final = {
    "bash": '{name}() {{ command "${{COMP_WORDS[0]}}" completion --names {kind} bash '
    '-- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null </dev/null; }}',
    "zsh": '{name}() {{ compadd -- ${{(f)"$(command $service completion --names {kind} zsh '
    '-- "${{(@Q)${{(z)LBUFFER}}}}" "$PREFIX" 2>/dev/null </dev/null)"}} }}',
    "fish": "(command nodepool completion --names {kind} fish -- (commandline -opc) (commandline -ct) 2>/dev/null)",
}


def do_completion(options: argparse.Namespace) -> int:
    """``nodepool completion``"""
    if options.names:
        importlib.import_module("nodepool.cmd.overview").print_names(options.names, options.words)
        return 0
    import shtab

    parser = make_parser(flat=True)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for command_name, one in (("", parser), *commands.choices.items()):
        for action in one._actions:
            kind = _NAMED.get(f"{command_name}.{action.dest}") or _NAMED.get(action.dest)
            if action.type is app.absolute_path:
                action.complete = shtab.FILE
            elif action.dest == "state":
                action.choices = states.REQUEST_STATES if "request" in command_name else states.NODE_STATES
            elif kind and action.nargs != 0 and not action.choices:
                name = f"_nodepool_names_{kind}"
                calls = {shell: call.format(name=name, kind=kind) for shell, call in _CALLS.items()}
                action.complete = {"bash": name, "zsh": name, "fish": calls.pop("fish"), "preamble": calls}
            elif not action.option_strings and not action.choices:
                # Without it zsh completes no option in front of it.
                action.complete = {"zsh": "()"}
    print(shtab.complete(parser, options.shell))
    return 0


if __name__ == "__main__":
    sys.exit(program())
