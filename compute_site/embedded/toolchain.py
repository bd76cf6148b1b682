"""A C compiler that links statically: the machine's own, else Debian's packages unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import packages
from .paths import RUN
from .progress import Failed, step

UNPACKED = RUN / "toolchain"
PACKAGES = ("gcc", "libc6-dev", "binutils")
# The machine's own loader runs the unpacked gcc: a second C library beside it may not match.
_MACHINE_HAS = ("libc6", "perl-base")


def compiler() -> str:
    """The command line (for $CC) of a compiler that can link a static program; raises `Failed`.

    $CC comes first, then `gcc` and `cc`, then packages unpacked under .run/toolchain.
    """
    for candidate in candidates():
        if links_statically(candidate):
            return candidate
    command = unpacked_compiler()
    if not links_statically(command):
        raise Failed("No C compiler that links statically: `apt install gcc libc6-dev`.")
    return command


def candidates() -> list[str]:
    """The compilers that are here already, the preferred first; they may not work."""
    found = (os.environ.get("CC"), shutil.which("gcc"), shutil.which("cc"))
    return [command for command in found if command]


def unpacked_compiler() -> str:
    """Unpack gcc, its C library and binutils if need be; returns the command line that uses only them."""
    if not (UNPACKED / "usr/bin/gcc").exists():
        step(f"toolchain: unpacking gcc under {UNPACKED} (nothing is installed)")
        packages.unpack_whole(PACKAGES, UNPACKED, closure="full", exclude=_MACHINE_HAS, finish=_wrap)
    return str(UNPACKED / "cc")


def _wrap(root: Path) -> None:
    """A short `cc`: $CC is often taken as one word, and the programs need the libraries beside them."""
    script = root / "cc"
    script.write_text(
        "#!/bin/sh\n"
        'here=$(dirname "$(readlink -f "$0")")\n'
        'export LD_LIBRARY_PATH=$(echo "$here"/usr/lib/*-linux-gnu)\n'
        'PATH=$here/usr/bin:$PATH exec "$here/usr/bin/gcc" --sysroot="$here" -B"$here/usr/bin/" "$@"\n'
    )
    script.chmod(0o755)


def links_statically(command: str) -> bool:
    """True when this compiler makes a static program that runs."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.c"
        source.write_text('#include <stdio.h>\nint main(void) { return puts("ok") < 0; }\n')
        output = Path(folder) / "a"
        build = [*command.split(), "-static", "-o", str(output), str(source)]
        try:
            if subprocess.run(build, capture_output=True, check=False).returncode != 0:
                return False
            return subprocess.run([str(output)], capture_output=True, check=False).stdout == b"ok\n"
        except OSError:
            return False
