# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by tools/bench, tools/demo, tools/release, tools/test and others: Debian packages and virtualenvs, installed only when something is missing.

missing_packages=()

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# need PACKAGE COMMAND...: the package is missing when the command fails. What counts is the ability, not the package:
# a Java or Python from elsewhere is as good.
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing_packages+=("$package")
}

has_program() { command -v "$1" || [ -x "/usr/sbin/$1" ]; }

need_python() {
    if has_program python3 >/dev/null; then
        python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
            fail "$(python3 --version) is too old: Python 3.11 or newer is needed (Debian 12 and later have it)"
    else
        missing_packages+=(python3)
    fi
    need python3-venv python3 -c 'import ensurepip, venv'
}

need_java_zookeeper() {
    need default-jre-headless java -version
    # The library alone: nothing of it starts a system service.
    need libzookeeper-java test -e /usr/share/java/zookeeper.jar
}

need_sshd() {
    need openssh-server has_program sshd
    need openssh-client has_program ssh-keygen
}

# Shells for which "nodepool completion" prints a script.
need_shells() {
    need zsh has_program zsh
    need fish has_program fish
}

# A browser for the web pages. Its window needs no display; texts need a font.
need_browser() {
    need chromium has_program chromium
    need fonts-dejavu-core test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
}

# install_missing: install what "need" found missing, or say exactly what to install, and end.
install_missing() {
    [ ${#missing_packages[@]} -gt 0 ] || return 0
    local command="apt-get install --no-install-recommends ${missing_packages[*]}"
    has_program apt-get >/dev/null ||
        fail "not a Debian system; install what these Debian packages hold, then try again: ${missing_packages[*]}"
    [ "$(id -u)" -eq 0 ] || fail "not root, so nothing was installed. Run this first:  sudo $command"
    say "Installing Debian packages: ${missing_packages[*]}"
    apt_install
    missing_packages=()
}

# Runs in a subshell, so that the trap ends with it.
apt_install() (
    log=$(mktemp)
    policy=/usr/sbin/policy-rc.d
    trap 'rm -f "$log"; [ -z "${made_policy:-}" ] || rm -f "$policy"' EXIT
    # A package must not start a service here: we start our own, on our own ports.
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        made_policy=yes
    fi
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update && apt-get install -y --no-install-recommends "${missing_packages[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        fail "the installation failed, its last lines are above. By hand:  apt-get install ${missing_packages[*]}"
    fi
    case " ${missing_packages[*]} " in
    *" openssh-server "*)
        # Nobody asked for a login service: leave it installed, but off, also after the next boot.
        [ ! -d /run/systemd/system ] || systemctl --quiet disable ssh.service ssh.socket >/dev/null 2>&1 || true
        ;;
    esac
    case " ${missing_packages[*]} " in
    *" prometheus "*)
        # Only its tool is wanted.
        [ ! -d /run/systemd/system ] || systemctl --quiet disable prometheus.service >/dev/null 2>&1 || true
        ;;
    esac
)

# make_virtualenv DIR WHAT PIP-ARGUMENT...: a virtualenv with these things; made again only when something it depends on changed.
make_virtualenv() {
    local directory=$1 what=$2 stamp log
    shift 2
    stamp=$(printf '%s\n' "$(python3 --version)" "$@" | cat - requirements.txt benchmarks/requirements.txt setup.cfg | cksum)
    if [ "$(cat "$directory/.stamp" 2>/dev/null)" = "$stamp" ] && "$directory/bin/python" -c '' 2>/dev/null; then
        return 0
    fi
    say "Making the virtualenv ${directory#"$PWD"/} with $what"
    python3 -m venv --clear "$directory" || fail "cannot make a virtualenv in $directory"
    log=$directory/install.log
    if ! "$directory/bin/python" -m pip install --disable-pip-version-check "$@" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        fail "pip failed; its last lines are above, all of them in $log"
    fi
    printf '%s\n' "$stamp" >"$directory/.stamp"
}
