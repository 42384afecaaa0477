#!/bin/sh
# Makes a checkout ready to run; `make setup` starts it.
#
#   setup.sh             .venv with the locked packages and midstream itself, and a usable Java
#   setup.sh java-home   only prints the JAVA_HOME that Spark is to use
#
# Plain sh, because it has to run before there is a Python to trust. What it does goes to
# .setup.log; on the terminal it says one line per slow step, or what is wrong and what to do.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
LOG=.setup.log

say() { echo "setup: $*" >&2; }

die() {
    say "$@"
    exit 1
}

logged() { "$@" >>"$LOG" 2>&1; }

# The steps whose failure only their own output explains.
must() {
    logged "$@" && return
    tail -n 20 "$LOG" >&2
    die "this must succeed: $*; it failed, see above. Hint: the whole story is in $LOG"
}

# ---------------------------------------------------------------------------------------------
# The system's package manager: tried only where it needs no password, so that it never hangs.

as_root() {
    if [ "$(id -u)" = 0 ]; then
        logged env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        logged sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    else
        return 1
    fi
}

# Installs the first of the named packages that exists.
apt_install() {
    as_root apt-get update || true # a stale list is better than none
    for package in "$@"; do
        as_root apt-get install -y --no-install-recommends "$package" && return 0
    done
    return 1
}

# ---------------------------------------------------------------------------------------------
# Python. The upper bound is there because the locked packages have no wheels beyond it.

right_version() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

can_make_venvs() { "$1" -c 'import venv; from ensurepip import version' 2>/dev/null; }

find_python() { # find_python TEST: the first Python of the right version that passes TEST
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
        if right_version "$python" && "$1" "$python"; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

# Debian and Ubuntu ship Python without the part that makes virtual environments.
install_venv_support() { # install_venv_support PYTHON-OR-NOTHING
    command -v apt-get >/dev/null || return 1
    package=python3-venv
    if [ -n "$1" ]; then
        package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    fi
    say "there is no Python that makes virtual environments; trying apt-get install $package"
    apt_install "$package" python3-venv
}

choose_python() {
    find_python can_make_venvs && return
    bare=$(find_python true || true)
    install_venv_support "$bare" && find_python can_make_venvs && return
    if [ -n "$bare" ]; then
        die "$bare must be able to make virtual environments; it has no ensurepip." \
            "Hint: on Debian or Ubuntu, sudo apt-get install python3-venv"
    fi
    die "Python 3.11 to 3.14 must be installed; found none on PATH." \
        "Hint: install one, or name one: make setup PYTHON=/path/to/python3.13"
}

# A virtual environment breaks when its Python goes away or its folder moves: then it is remade.
venv_works() { right_version "$VENV/bin/python" && "$VENV/bin/python" -m pip --version; }

install_packages() {
    if ! logged venv_works; then
        python=$(choose_python)
        say "creating $VENV with $("$python" -V)"
        must "$python" -m venv --clear "$VENV"
    fi
    pip="$VENV/bin/python -m pip --disable-pip-version-check install --no-input"
    say "installing the locked packages (minutes the first time; progress in $LOG)"
    # Builders first and no isolation after: an isolated build would fetch its own, unpinned ones.
    # shellcheck disable=SC2086 # $pip is several words on purpose
    {
        must $pip --require-hashes -r requirements-build.lock
        must $pip --require-hashes --no-build-isolation -r requirements.lock
        must $pip --no-deps --no-build-isolation --editable .
    }
}

# ---------------------------------------------------------------------------------------------
# Java. Spark takes it from JAVA_HOME, so a path is what is looked for.

home_of() { # home_of JAVA-PROGRAM: prints its JAVA_HOME if it is Java 17 or newer
    [ -x "$1" ] || return 1
    facts=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(echo "$facts" | sed -n 's/^ *java.specification.version = \([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ] || return 1
    echo "$facts" | sed -n 's/^ *java.home = //p'
}

find_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        home_of "$JAVA_HOME/bin/java" && return
        say "JAVA_HOME=$JAVA_HOME is not Java 17 or newer; looking elsewhere"
    fi
    for java in \
        "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java \
        /opt/java/*/bin/java \
        "$(/usr/libexec/java_home -v 17+ 2>/dev/null || true)/bin/java" \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java \
        /usr/local/opt/openjdk*/bin/java; do
        home_of "$java" && return
    done
    return 1
}

install_java() {
    for manager in brew apt-get dnf apk none; do
        command -v "$manager" >/dev/null && break
    done
    [ "$manager" != none ] || return 1
    say "Spark needs Java 17 or newer and there is none; trying $manager"
    case $manager in
    brew) logged brew install openjdk@21 ;;
    apt-get) apt_install openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless ;;
    dnf)
        as_root dnf install -y java-21-openjdk-headless ||
            as_root dnf install -y java-17-openjdk-headless
        ;;
    apk) as_root apk add openjdk21-jre-headless ;;
    esac
}

no_java() {
    die "Java 17 or newer must be installed; found none in JAVA_HOME, on PATH or in the usual" \
        "places. Hint: run one of these, then make setup again:
    sudo apt-get install openjdk-17-jre-headless    (Debian, Ubuntu; from Debian 13 on: -21-)
    sudo dnf install java-21-openjdk-headless       (Fedora, RHEL)
    brew install openjdk@21                         (macOS)
  or point JAVA_HOME at one that is installed: make setup JAVA_HOME=/path/to/jdk"
}

# ---------------------------------------------------------------------------------------------

case ${1:-all} in
java-home)
    find_java || no_java
    ;;
all)
    : >"$LOG"
    # Java first: better to hear of a missing one before the long download than after it.
    java_home=$(find_java) || { install_java && java_home=$(find_java); } || no_java
    install_packages
    touch "$VENV/setup-done" # the Makefile compares its age with the lock files'
    say "ready ($("$VENV/bin/python" -V), Java in $java_home)"
    ;;
*)
    die "the argument must be java-home or nothing; got $1. Hint: see the top of scripts/setup.sh"
    ;;
esac
