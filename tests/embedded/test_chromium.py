"""Which browser the tests of the pages get."""

import subprocess
from pathlib import Path

import pytest

from compute_site.embedded import chromium, packages
from compute_site.embedded.progress import Failed


def program(folder: Path, name: str, line: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine without a browser, on which nothing is unpacked yet."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "NAMES", ("no-such-browser",))
    monkeypatch.setattr(chromium, "UNPACKED", tmp_path / "unpacked")


def test_a_given_one_comes_first_and_has_to_run(monkeypatch, tmp_path):
    good = program(tmp_path, "good", "echo Chromium 1")
    monkeypatch.setenv("CHROMIUM", good)
    assert chromium.browser() == good
    monkeypatch.setenv("CHROMIUM", program(tmp_path, "bad", "exit 1"))
    with pytest.raises(Failed, match="which does not run"):
        chromium.browser()
    monkeypatch.setenv("CHROMIUM", "/no/such/file")
    with pytest.raises(Failed, match="which does not run"):
        chromium.browser()


def test_the_machines_own_unless_it_is_broken(monkeypatch, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "broken-browser", "exit 127")
    own = program(folder, "own-browser", "echo Chromium 1")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(chromium, "NAMES", ("broken-browser", "own-browser"))
    assert chromium.browser() == own


def test_else_unpacked_once_with_its_libraries_and_fonts_beside_it(monkeypatch):
    unpacked = []

    def unpack(names, target, *, closure, exclude):
        unpacked.append((names, closure))
        (target / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
        folder = target / "usr/lib/chromium"
        folder.mkdir()
        program(
            folder, "chromium", 'echo "Chromium of $LD_LIBRARY_PATH with $FONTCONFIG_FILE, $XDG_CACHE_HOME"'
        )

    monkeypatch.setattr(packages, "unpack", unpack)
    path = chromium.browser()
    assert chromium.browser() == path
    assert unpacked == [(chromium.PACKAGES, "missing")]
    done = subprocess.run([path], capture_output=True, text=True, check=True).stdout
    root = chromium.UNPACKED
    assert f"{root}/usr/lib/x86_64-linux-gnu" in done
    assert f"{root}/fonts.conf, {root}/cache" in done  # nothing is left in the folder that it is started from
