"""The node's first program: secrets are made once, a pulse is judged by its age, the launcher lies where jobs see it."""

import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType

import pytest

from compute_site.embedded.paths import REPOSITORY


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("CONFIG_DIR", str(tmp_path))
    spec = importlib.util.spec_from_file_location("start", REPOSITORY / "docker/node/start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_secrets_are_never_overwritten(start: ModuleType, tmp_path: Path) -> None:
    start.make_secrets()
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(made) == {"secret_key", "database_password", "broker_password", "broker.conf"}
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o400
    (tmp_path / "broker_password").unlink()
    start.make_secrets()
    assert (tmp_path / "broker_password").read_bytes() != made.pop("broker_password")
    assert {name: (tmp_path / name).read_bytes() for name in made} == made


def test_a_pulse_is_judged_by_its_age(
    start: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulse = tmp_path / "pulse"
    monkeypatch.setenv("PULSE_FILE", str(pulse))
    assert not start.alive()
    pulse.touch()
    assert start.alive()
    long_ago = time.time() - start.PULSE_SECONDS - 1
    os.utime(pulse, (long_ago, long_ago))
    assert not start.alive()


def test_web_that_does_not_answer(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_PORT", "9")
    assert not start.answers()


def test_each_launcher_has_a_name_of_its_own_beside_the_jobs(
    start: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    monkeypatch.setenv("LAUNCHER", str(source))
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "umask", lambda mask: None)
    found = []
    for content in (b"one", b"one", b"two"):
        source.write_bytes(content)
        launcher = Path(start.beside_the_jobs()["LAUNCHER"])
        assert launcher.parent == tmp_path
        assert launcher.read_bytes() == content
        assert launcher.stat().st_mode & 0o777 == 0o555
        found.append(launcher)
    assert found[0] == found[1] != found[2]
    assert found[0].read_bytes() == b"one"  # for a container that is created and not started
