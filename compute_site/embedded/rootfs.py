"""The file systems of our images, as layers: plain tar files that come out the same on every machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import packages
from .packages import Package
from .paths import RUN, made
from .progress import Failed, step

CACHE = RUN / "images"
MTIME = 1_577_836_800  # 2020-01-01: a layer must not depend on when it was made.

# Python with the whole standard library, and nothing that runs programs for anybody.
_PYTHON = ("python3-minimal", "libpython3-stdlib")
_NOT_NEEDED = (
    # Asked for by dpkg, which only the maintainer scripts of these packages use.
    *("dpkg", "tar", "libacl1", "libselinux1", "libpcre2-8-0", "libmd0", "libzstd1"),
    # Documentation, and the libraries of the module nis, which is left out below.
    *("gcc-12-base", "readline-common", "libtirpc-common", "libtirpc3", "libnsl2", "libgssapi-krb5-2"),
    *("libk5crypto3", "libkrb5-3", "libkrb5support0", "libkeyutils1", "libcom-err2"),
)
_PRUNED = (
    *("usr/share/bug", "usr/share/lintian", "usr/share/man", "usr/share/locale", "usr/share/binfmts"),
    *("usr/share/python3", "usr/lib/binfmt.d", "usr/lib/*/gconv", "etc/gss"),
    *("usr/share/doc/*/[!c]*", "usr/share/doc/*/ch*", "usr/lib/python3*/lib-dynload/nis.*"),
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/nonexistent\nnobody:x:65534:65534:nobody:/:/nonexistent\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    # What is mounted over these exists already, so that the engine need not make it for every container.
    "etc/hosts": "",
    ".site/launcher": "",
}
_FOLDERS = (".site/control", "data", "dev", "proc", "run", "sys", "tmp")


@dataclass(frozen=True, slots=True)
class Layer:
    """A tar file and its "sha256:..."."""

    path: Path
    digest: str


def base() -> Layer:
    """Debian's Python 3 with its standard library, compiled; no shell. Raises `Failed`."""
    chosen = packages.closure(_PYTHON, kind="full", exclude=_NOT_NEEDED)
    return _cached("base", chosen, _make_base)


def tools() -> Layer:
    """A shell and small programs (busybox), as a layer above `base`. Raises `Failed`."""
    return _cached("tools", packages.closure(["busybox-static"], kind="none"), _make_tools)


def recipe() -> str:
    """16 characters that change when this recipe does."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def _make_base(tree: Path) -> None:
    packages.unpack(_PYTHON, tree, closure="full", exclude=_NOT_NEEDED)
    for pattern in _PRUNED:
        for path in tree.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in _FOLDERS:
        made(tree / name)
    (tree / "tmp").chmod(0o1777)
    for name, text in _FILES.items():
        made((tree / name).parent)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755 if name == ".site/launcher" else 0o644)
    _compile(tree)


def _compile(tree: Path) -> None:
    """Compiles the standard library with the tree's own Python: a job's root is read-only and could not."""
    loader = next((tree / "lib64").glob("ld-linux*"), None) or next((tree / "lib").glob("ld-linux*"), None)
    libraries = next((tree / "usr/lib").glob("*-linux-gnu*"), None)
    python = next((tree / "usr/bin").glob("python3.*"), None)
    if loader is None or libraries is None or python is None:
        raise Failed("the packages hold no Python: the base image cannot be made.")
    command = [str(loader), "--library-path", str(libraries), str(python)]
    # -B: what compileall imports for itself would be written with the paths of this machine in it.
    command += ["-I", "-S", "-B", "-m", "compileall", "-q"]
    # Unchecked: no stat per import, and no time stamp in the files.
    command += ["--invalidation-mode", "unchecked-hash", "-s", str(tree), "-p", "/"]
    command.append(str(tree / "usr/lib" / python.name))
    subprocess.run(command, check=True, env={"PYTHONHASHSEED": "0"})


def _make_tools(tree: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made(CACHE)) as folder:
        packages.unpack(["busybox-static"], Path(folder), closure="none")
        busybox = made(tree / "usr/bin") / "busybox"
        shutil.copyfile(next(Path(folder).glob("**/bin/busybox")), busybox)
    busybox.chmod(0o755)
    applets = subprocess.run(
        [str(busybox), "--list"], capture_output=True, text=True, check=True
    ).stdout.split()
    for applet in applets:
        if applet != "busybox":
            (busybox.parent / applet).symlink_to("busybox")


def _cached(name: str, chosen: Sequence[Package], make: Callable[[Path], None]) -> Layer:
    """The layer from the cache; made first when the packages or this recipe are new."""
    facts = "\n".join(
        [recipe(), os.uname().machine, *(f"{package.file} {package.digest}" for package in chosen)]
    )
    target = CACHE / f"{name}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.tar"
    if not target.exists():
        step(f"image: making the layer {name}")
        with tempfile.TemporaryDirectory(dir=made(CACHE)) as folder:
            make(made(Path(folder) / "tree"))
            pack(Path(folder) / "tree", Path(folder) / "layer")
            os.replace(Path(folder) / "layer", target)
        for old in CACHE.glob(f"{name}-*.tar"):
            if old != target:
                old.unlink(missing_ok=True)
    with target.open("rb") as source:
        return Layer(target, "sha256:" + hashlib.file_digest(source, "sha256").hexdigest())


def pack(tree: Path, target: Path) -> None:
    """Write `tree` as a tar: sorted, owned by root, one time stamp, no set-id bits; files, links, folders only."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(tree):
            entry = archive.gettarinfo(str(path), arcname=str(path.relative_to(tree)))
            if not (entry.isreg() or entry.islnk() or entry.issym() or entry.isdir()):
                raise Failed(f"{path} is no file: it does not belong into an image.")
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = MTIME, 0, 0, "", ""
            entry.mode = 0o777 if entry.issym() else entry.mode & (0o1777 if entry.isdir() else 0o777)
            if entry.islnk():  # A second name of a file that came before becomes a file again.
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            if entry.isreg():
                with path.open("rb") as source:
                    archive.addfile(entry, source)
            else:
                archive.addfile(entry)


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if stat.S_ISDIR(path.lstat().st_mode):
            yield from _walk(path)
