"""Where things lie: the checkout, its `.run` folder, and a short folder for unix sockets."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from .progress import Failed

REPOSITORY = Path(__file__).resolve().parents[2]
RUN = REPOSITORY / ".run"


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one set of services: `./run up` and `./run test` use different ones."""

    root: Path

    @property
    def logs(self) -> Path:
        return made(self.root / "log")

    @property
    def tag(self) -> str:
        """8 characters that tell this set from any other on the machine."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def site_id(self) -> str:
        """The id of the site that runs on this set."""
        return os.environ.get("SITE_ID") or f"s{self.tag[:6]}"

    @property
    def sockets(self) -> Path:
        """A short folder: a unix socket's path may have 107 bytes and a checkout can lie deep."""
        folder = Path("/tmp") / f"cs-{self.tag}"
        folder.mkdir(mode=0o755, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise Failed(f"{folder} belongs to somebody else: remove it or move the checkout.")
        return folder


def made(folder: Path) -> Path:
    """The folder, created with its parents when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def private(folder: Path, owner: pwd.struct_passwd | None) -> Path:
    """The folder, created with mode 0700 and given to `owner` (None: ourselves)."""
    made(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    if owner is not None and folder.stat().st_uid != owner.pw_uid:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    return folder


def open_to(folder: Path, user: pwd.struct_passwd | None) -> bool:
    """True when `user` (None: ourselves) may walk down to `folder`; parts that do not exist yet count as open."""
    if user is None:
        return True
    for part in (folder, *folder.parents):
        if part.exists() and not _may_enter(part.stat(), user):
            return False
    return True


def _may_enter(facts: os.stat_result, user: pwd.struct_passwd) -> bool:
    if facts.st_uid == user.pw_uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == user.pw_gid:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)
