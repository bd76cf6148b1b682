"""Debian packages fetched and unpacked into a folder, without installing anything on the machine.

As a program: `TARGET NAME...` unpacks just these packages.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .paths import RUN, made
from .progress import Failed, step

Closure = Literal["missing", "full", "none"]
CACHE = RUN / "debs"
BATCH = 40


@dataclass(frozen=True, slots=True)
class Package:
    """One package file as the archive names it; `digest` is "SHA256:..." or another kind that apt verified."""

    name: str
    url: str
    file: str
    size: int
    digest: str


def closure(names: Sequence[str], *, kind: Closure, exclude: Iterable[str] = ()) -> list[Package]:
    """The packages that `names` need, by apt's own solver, sorted by name.

    `missing`: only what this machine lacks (the named ones are always there, even when installed).
    `full`: everything below them, as if nothing were installed: enough for a root filesystem.
    `none`: the named ones only. Recommended packages are left out, and so are those in `exclude`
    (what only they need stays in). Raises `Failed` when apt cannot tell.
    """
    command = ["apt-get", *_options(), "--print-uris", "--yes", "-qq", "--no-install-recommends"]
    if kind == "full":
        command += [*_nothing_installed(), "install", *names]
    elif kind == "missing":
        command += ["install", "--reinstall", *names]
    else:
        command += [*_nothing_installed(), "download", *names]
    skipped = set(exclude)
    found = {package.name: package for package in map(_parsed, _lines(command)) if package is not None}
    return [found[name] for name in sorted(found) if name not in skipped]


def download(packages: Iterable[Package]) -> list[Path]:
    """The package files, from the cache or the archive, each with its digest verified; order is kept."""
    wanted = list(packages)
    absent = [package for package in wanted if not _intact(package)]
    # Starting apt costs more than most of these downloads: a few calls, each with a line before it.
    for start in range(0, len(absent), BATCH):
        batch = absent[start : start + BATCH]
        size = sum(package.size for package in batch) / 1e6
        step(
            f"packages: {start + 1}-{start + len(batch)} of {len(absent)}, {batch[0].name}... ({size:.1f} MB)"
        )
        _fetch(batch)
    return [made(CACHE) / package.file for package in wanted]


def unpack(
    names: Sequence[str], target: Path, *, closure: Closure, exclude: Iterable[str] = ()
) -> list[Package]:
    """Put the packages' files below `target` (maintainer scripts do not run) and return what was unpacked.

    `closure` and `exclude` are those of the function `closure`. The order is that of the names, so that
    the same packages always give the same tree.
    """
    chosen = _closure(names, kind=closure, exclude=exclude)
    made(target)
    if closure == "full":
        _merge_usr(target)
    for file in download(chosen):
        _extract(file, target)
    return chosen


def unpack_whole(
    names: Sequence[str],
    target: Path,
    *,
    closure: Closure,
    exclude: Iterable[str] = (),
    finish: Callable[[Path], None] | None = None,
) -> None:
    """`unpack` beside `target`, `finish` what came of it, then put it in place of what is there: never half of it."""
    fresh = target.with_name(f"{target.name}-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    unpack(names, fresh, closure=closure, exclude=exclude)
    if finish is not None:
        finish(fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


_closure = closure  # `unpack` has an argument of that name.


def _merge_usr(target: Path) -> None:
    """/bin, /sbin and /lib are links into /usr, as on every Debian since 12."""
    for name in ("bin", "sbin", "lib", "lib64"):
        made(target / "usr" / name)
        if not (target / name).exists():
            (target / name).symlink_to(f"usr/{name}")


def _extract(file: Path, target: Path) -> None:
    # `dpkg-deb --extract` would replace the links of _merge_usr by folders.
    archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE)
    tar = ["tar", "--extract", "--file=-", "--keep-directory-symlink", f"--directory={target}"]
    unpacked = subprocess.run(tar, stdin=archive.stdout, capture_output=True, text=True, check=False)
    if archive.stdout is not None:
        archive.stdout.close()
    if archive.wait() != 0 or unpacked.returncode != 0:
        raise Failed(f"{file.name} could not be unpacked: {unpacked.stderr.strip()[-300:]}")


def _parsed(line: str) -> Package | None:
    """One line of --print-uris: 'url' file size digest."""
    if not line.startswith("'"):
        return None
    url, file, size, *digest = line.split()
    return Package(file.split("_")[0], url.strip("'"), file, int(size), digest[0] if digest else "")


def _options() -> list[str]:
    options = ["-o", "Debug::NoLocking=1", "-o", "APT::Get::List-Cleanup=0", "-o", "Acquire::Retries=3"]
    options += ["-o", "Acquire::ForceHash=SHA256"]
    # apt says nothing about files that the machine's own cache happens to hold: give it an empty one.
    options += ["-o", f"Dir::Cache::archives={made(RUN / 'apt' / 'archives' / 'partial').parent}"]
    if not _lists_filled(Path("/var/lib/apt/lists")):
        options += _own_lists()
    return options


def _lists_filled(folder: Path) -> bool:
    try:
        return any("_Packages" in entry.name for entry in folder.iterdir())
    except OSError:
        return False


def _own_lists() -> list[str]:
    """Package lists of our own, for a machine whose lists are empty: the system's stay as they are."""
    state = RUN / "apt"
    lists = made(state / "lists" / "partial").parent
    made(state / "cache" / "archives" / "partial")
    options = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={state / 'cache'}"]
    if os.getuid() == 0:
        options += ["-o", "APT::Sandbox::User=root"]  # `_apt` may not reach the checkout.
    if not _lists_filled(lists):
        step("packages: fetching the package lists")
        _run(["apt-get", *options, "-qq", "update"], "the package lists could not be fetched")
    return options


def _nothing_installed() -> list[str]:
    empty = made(RUN / "apt") / "status"
    empty.touch()
    return ["-o", f"Dir::State::status={empty}", "-o", "Dir::State::extended_states=/dev/null"]


def _intact(package: Package) -> bool:
    path = CACHE / package.file
    if not path.exists() or path.stat().st_size != package.size:
        return False
    kind, _, wanted = package.digest.partition(":")
    if kind.upper() not in ("SHA256", "SHA512"):
        return True
    with path.open("rb") as source:
        return hashlib.file_digest(source, kind.lower()).hexdigest() == wanted


def _fetch(packages: Sequence[Package]) -> None:
    """Through apt, which knows proxies, mirrors and authentication, and verifies what it got."""
    partial = made(CACHE / f"partial-{os.getpid()}")
    command = ["apt-get", *_options(), "-qq"]
    if os.getuid() == 0:
        command += ["-o", "APT::Sandbox::User=root"]
    command += ["download", *(_pinned(package) for package in packages)]
    names = ", ".join(package.name for package in packages)
    _run(command, f"{names} could not be downloaded", folder=partial)
    for file in partial.iterdir():
        os.replace(file, CACHE / file.name)  # At once: several processes may fill the cache.
    shutil.rmtree(partial)
    for package in packages:
        if not _intact(package):
            raise Failed(f"{package.file} is damaged: remove {CACHE} and try again.")


def _pinned(package: Package) -> str:
    name, version = package.file.removesuffix(".deb").split("_")[:2]
    return f"{name}={version.replace('%3a', ':')}"


def _lines(command: Sequence[str]) -> list[str]:
    return _run(command, "apt could not work out the packages").splitlines()


def _run(command: Sequence[str], failure: str, folder: Path | None = None) -> str:
    if shutil.which(command[0]) is None:
        raise Failed(f"{command[0]} is missing: this step needs Debian or Ubuntu.")
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise Failed(f"{failure}: {done.stderr.strip()[-600:]}")
    return done.stdout


if __name__ == "__main__":
    unpack(sys.argv[2:], Path(sys.argv[1]), closure="none")
