from pathlib import Path

import pytest

from compute_site.embedded import toolchain
from compute_site.embedded.progress import Failed


def test_a_compiler_is_used_only_when_it_really_links_statically(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert toolchain.compiler() != str(broken)
    assert not toolchain.links_statically(str(tmp_path / "none"))


def test_without_a_compiler_debians_own_is_unpacked_and_works(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolchain, "candidates", lambda: [])
    command = toolchain.unpacked_compiler()
    assert Path(command).is_relative_to(toolchain.UNPACKED)
    assert toolchain.links_statically(command)
    assert toolchain.compiler() == command


def test_a_useless_unpacked_one_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolchain, "links_statically", lambda command: False)
    monkeypatch.setattr(toolchain, "unpacked_compiler", lambda: "cc")
    with pytest.raises(Failed, match="apt install gcc"):
        toolchain.compiler()
