"""A browser for the tests of the pages: the machine's own Chromium, else Debian's packages unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import packages
from .paths import RUN
from .progress import Failed, step

UNPACKED = RUN / "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")  # of a machine's own
PACKAGES = ("chromium", "chromium-common", "fonts-dejavu-core", "fontconfig-config")
# Nothing is drawn on a screen, and maintainer scripts do not run: no drivers, icons, or programs of a system. The
# machine's own loader runs it: a second C library beside it may not match.
NOT_NEEDED = (
    *("adwaita-icon-theme", "dbus", "dpkg", "libgl1-mesa-dri", "libllvm15", "libperl5.36", "libz3-4"),
    *("passwd", "perl", "perl-base", "perl-modules-5.36", "procps", "systemd", "tar", "xdg-utils", "libc6"),
)


def browser() -> str:
    """The path of a Chromium that runs; raises `Failed`.

    $CHROMIUM comes first, then the machine's own, then packages unpacked under .run/chromium.
    """
    given = os.environ.get("CHROMIUM")
    if given:
        if not runs(given):
            raise Failed(f"CHROMIUM is {given}, which does not run.")
        return given
    for name in NAMES:
        found = shutil.which(name)
        if found and runs(found):
            return found
    command = unpacked_browser()
    if not runs(command):
        raise Failed(f"The unpacked Chromium does not run: remove {UNPACKED} and try again, or set CHROMIUM.")
    return command


def unpacked_browser() -> str:
    """Unpack Chromium with what it needs beside this machine if need be; returns the path that starts it."""
    if not (UNPACKED / "browser").exists():
        step(f"browser: unpacking Chromium under {UNPACKED} (nothing is installed)")
        packages.unpack_whole(PACKAGES, UNPACKED, closure="missing", exclude=NOT_NEEDED, finish=_wrap)
    return str(UNPACKED / "browser")


def runs(command: str) -> bool:
    """True when it tells its version."""
    try:
        done = subprocess.run(
            [command, "--version", "--no-sandbox"], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b"Chrom" in done.stdout


def _wrap(root: Path) -> None:
    """One program that finds the libraries and fonts beside it; Debian's own starter would look for them below /."""
    script = root / "browser"
    script.write_text(
        "#!/bin/sh\n"
        'here=$(dirname "$(readlink -f "$0")")\n'
        'export LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu "$here"/lib/*-linux-gnu | tr " " ":")\n'
        'export FONTCONFIG_FILE="$here/fonts.conf" XDG_CACHE_HOME="$here/cache"\n'
        'exec "$here/usr/lib/chromium/chromium" "$@"\n'
    )
    script.chmod(0o755)
    (root / "fonts.conf").write_text(
        "<?xml version='1.0'?>\n<!DOCTYPE fontconfig SYSTEM 'fonts.dtd'>\n"
        "<fontconfig><dir prefix='relative'>usr/share/fonts</dir>"
        "<cachedir prefix='xdg'>fontconfig</cachedir></fontconfig>\n"
    )
