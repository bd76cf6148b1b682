import os
import subprocess
from pathlib import Path

import pytest

from compute_site.embedded import packages
from compute_site.embedded.progress import Failed


def names(kind: packages.Closure, *wanted: str, exclude: tuple[str, ...] = ()) -> list[str]:
    return [package.name for package in packages.closure(wanted, kind=kind, exclude=exclude)]


def test_full_is_everything_below_as_if_nothing_were_installed():
    found = names("full", "python3-minimal")
    assert {"python3-minimal", "libc6"} <= set(found)
    assert found == sorted(found)


def test_missing_leaves_out_what_the_machine_has():
    found = names("missing", "tini", "libc6")
    assert {"tini", "libc6"} <= set(found), "the named ones always, installed or not"
    assert "gcc-12-base" not in found
    assert "dpkg" not in found


def test_none_is_only_the_named_ones():
    assert names("none", "python3-minimal") == ["python3-minimal"]


def test_an_excluded_package_is_left_out_but_not_what_it_needs():
    with_all = names("full", "python3-minimal")
    without = names("full", "python3-minimal", exclude=("dpkg",))
    assert set(with_all) - set(without) == {"dpkg"}


def test_every_file_carries_a_strong_digest():
    for package in packages.closure(["netbase"], kind="full"):
        assert package.digest.startswith("SHA256:")
        assert package.size > 0


def test_an_unknown_package_is_told_by_name():
    with pytest.raises(Failed, match="no-such-package-here"):
        packages.closure(["no-such-package-here"], kind="full")


def test_unpacks_over_a_merged_usr_and_installs_nothing(tmp_path: Path):
    before = subprocess.run(["dpkg-query", "-W"], capture_output=True, check=True).stdout
    chosen = packages.unpack(["netbase"], tmp_path / "root", closure="full")
    assert [package.name for package in chosen] == ["netbase"]
    assert "https" in (tmp_path / "root/etc/services").read_text()
    assert os.readlink(tmp_path / "root/lib") == "usr/lib"
    assert subprocess.run(["dpkg-query", "-W"], capture_output=True, check=True).stdout == before


def test_a_damaged_file_in_the_cache_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packages, "CACHE", tmp_path)
    (package,) = packages.closure(["netbase"], kind="none")
    (file,) = packages.download([package])
    good = file.read_bytes()
    file.write_bytes(b"x" * len(good))
    assert packages.download([package]) == [file]
    assert file.read_bytes() == good


def test_lists_of_our_own_are_used_when_the_machine_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[list[str]] = []
    monkeypatch.setattr(packages, "RUN", tmp_path)
    monkeypatch.setattr(packages, "_lists_filled", lambda folder: False)

    def record(command: list[str], failure: str) -> str:
        ran.append(command)
        return ""

    monkeypatch.setattr(packages, "_run", record)
    packages._options()
    assert ran
    assert ran[0][-1] == "update"
    assert f"Dir::State::Lists={tmp_path}/apt/lists" in ran[0]
