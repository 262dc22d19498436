# SPDX-License-Identifier: Apache-2.0
"""``nodepool completion``: what a shell completes after the Tab key (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")

#: For bash and zsh. In zsh a length that begins with a letter, as in ``${words[@]:1:count}``, is no arithmetic.
_BASH: Final = """\
_nodepool() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local prefix= command= word= value= offered=
    # --option=value: three words in bash, one in zsh.
    if [ "$current" = "=" ]; then
        current=
    elif [ "$previous" = "=" ]; then
        previous=${{COMP_WORDS[COMP_CWORD-2]}}
    else
        case $current in
            --*=*) previous=${{current%%=*}} prefix=${{current%%=*}}= current=${{current#*=}} ;;
        esac
    fi
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
        if [ -n "$value" ]; then
            value=
            continue
        fi
        case $word in
            {first_values}) value=yes ;;
            {names}) command=$word; break ;;
        esac
    done
    case $command in
        '') offered='{first}' ;;
{commands}
    esac
    case $command:$previous in
{values}
    esac
    COMPREPLY=($(compgen -P "$prefix" -W "$offered" -- "$current"))
}}
complete -o default -F _nodepool nodepool
"""
_ZSH: Final = """\
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
"""
#: ``__nodepool_is COMMAND``: is it the command that was typed? That of an empty name: was none typed yet?
_FISH: Final = """\
function __nodepool_is
    set -l value no
    set -l found ''
    for word in (commandline -opc)[2..-1]
        if test $value = yes
            set value no
            continue
        end
        switch $word
            case {first_values}
                set value yes
            case '-*'
                continue
            case '*'
                set found $word
                break
        end
    end
    test "$found" = "$argv[1]"
end
complete -c nodepool -n '__nodepool_is ""' -f
"""


def add_command(
    add: Callable[..., argparse.ArgumentParser],
    parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
) -> None:
    """Add the command of this module.

    :param add: ``add_parser`` of the sub-command group.
    :param parser: of the whole command line.
    :param commands: name of each command -> its parser; this one is added.
    """
    command = add(
        "completion",
        help="print what a shell needs to complete commands and options",
        description="Prints a script for a shell, which completes commands, options and their values after it.",
        epilog="examples: nodepool completion bash > /etc/bash_completion.d/nodepool; in ~/.zshrc: "
        "source <(nodepool completion zsh); nodepool completion fish > ~/.config/fish/completions/nodepool.fish",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")

    def run(options: argparse.Namespace) -> int:
        print(script(options.shell, parser, commands), end="")
        return 0

    command.set_defaults(run=run)


def script(shell: str, parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for a shell.

    :param shell: one of `SHELLS`.
    :param parser: of the whole command line, for what may stand before a command.
    :param commands: name of each command -> its parser.
    """
    if shell == "fish":
        return "".join(_fish(parser, commands))
    return (_ZSH if shell == "zsh" else "") + _bash(parser, commands)


def _bash(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    words: list[str] = []
    values = list(_bash_values("", parser))
    for name, command in commands.items():
        offered = [option for action in _offered(command) for option in action.option_strings]
        for action in _offered(command):
            if not action.option_strings:
                offered += _choices(action)
        words.append(f"        {name}) offered='{' '.join(offered)}' ;;")
        values += _bash_values(name, command)
    options = [option for action in parser._actions for option in action.option_strings]
    return _BASH.format(
        first_values="|".join(_with_value(parser)),
        names="|".join(commands),
        first=" ".join([*commands, *options]),
        commands="\n".join(words),
        values="\n".join(values),
    )


def _bash_values(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    """What stands after options of a command. Where that is not known, the shell offers files."""
    for action in _offered(command):
        if action.option_strings and action.nargs != 0:
            places = "|".join(f"{name}:{option}" for option in action.option_strings)
            yield f"        {places}) offered='{' '.join(_choices(action))}' ;;"


def _fish(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield _FISH.format(first_values=" ".join(_with_value(parser)))
    yield from _fish_options("", parser)
    for name, command in commands.items():
        told = (command.description or "").partition(". ")[0].rstrip(".")
        yield f"complete -c nodepool -n '__nodepool_is \"\"' -a {name} -d {_quoted(told)}\n"
        yield from _fish_options(name, command)


def _fish_options(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    condition = f"-n '__nodepool_is \"{name}\"'"
    formatter = command._get_formatter()
    for action in _offered(command):
        # The commands themselves are no value of an option.
        choices = f" -x -a {_quoted(' '.join(_choices(action)))}" if name and _choices(action) else ""
        if not action.option_strings:
            if choices:
                yield f"complete -c nodepool {condition}{choices}\n"
            continue
        names = " ".join(
            f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}" for option in action.option_strings
        )
        value = "" if action.nargs == 0 or choices else " -r -F"
        text = formatter._expand_help(action) if action.help else ""
        yield f"complete -c nodepool {condition} {names}{value}{choices} -d {_quoted(text)}\n"


def _with_value(parser: argparse.ArgumentParser) -> list[str]:
    """Options that a value follows."""
    return [option for action in parser._actions if action.nargs != 0 for option in action.option_strings]


def _offered(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """Arguments of a command that its help tells of."""
    return [action for action in command._actions if action.help != argparse.SUPPRESS]


def _choices(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
