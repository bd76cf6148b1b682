"""The runner's parts, each against what a hostile bundle or function gives it. Whole runs are in tests/faults."""

import importlib.util
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from jobs.result_json import parse_result
from tests.bundles import tar_gz, zipped

PATH = Path(settings.BASE_DIR) / "docker/sandbox/runner.py"
OK = b'{"status": "ok", "result": 1}\n'
FOUND = b'{"loaded": true}\n'


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The runner as a module, with folders of the test's own."""
    for name, place in (("JOB_FILE", "job.json"), ("JOB_OUTPUTS", "outputs")):
        monkeypatch.setenv(name, str(tmp_path / place))
    (tmp_path / "outputs").mkdir()
    (tmp_path / "code").mkdir()
    spec = importlib.util.spec_from_file_location("runner_under_test", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def unpacked(runner: Any, tmp_path: Path, bundle: bytes) -> dict[str, str]:
    """Path → text of what the bundle holds, unpacked."""
    (tmp_path / "bundle").write_bytes(bundle)
    folder = tmp_path / "inside" / "folder"
    folder.mkdir(parents=True)
    runner.unpack(tmp_path / "bundle", folder)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("make", [tar_gz, zipped])
def test_a_good_bundle_is_unpacked(runner, tmp_path, make):
    files = {"own.py": "a = 1", "./package/__init__.py": "", "package/deep/x.py": "b"}
    found = unpacked(runner, tmp_path, make(files))
    assert found == {"own.py": "a = 1", "package/__init__.py": "", "package/deep/x.py": "b"}


def device() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        entry = tarfile.TarInfo("null")
        entry.type, entry.devmajor, entry.devminor = tarfile.CHRTYPE, 1, 3
        archive.addfile(entry)
    return target.getvalue()


def zip_link() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        info = zipfile.ZipInfo("own.py")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return target.getvalue()


HOSTILE = {
    "..": tar_gz({"../x": ""}),
    "deep ..": zipped({"a/../../x": ""}),
    "absolute": tar_gz({"/x": ""}),
    "backslash": zipped({"..\\x": ""}),
    "control character": tar_gz({"a\nb": ""}),
    "symlink": tar_gz({}, {"own.py": "/etc/passwd"}),
    "through a symlink": tar_gz({"link/x": ""}, {"link": "/"}),
    "symlink in a zip": zip_link(),
    "device": device(),
    "a name twice": tar_gz({"own.py": "", "./own.py": ""}),
    "a file as a folder": tar_gz({"a": "", "a/b": ""}),
    "cut off": tar_gz({"own.py": "x" * 100_000})[:60],
    "no gzip": b"\x1f\x8b\x08nothing",
    "no zip": b"PK\x03\x04nothing",
    "too many": tar_gz({f"{number}": "" for number in range(4097)}),
    "a bomb": tar_gz({"zeros": "\0" * (65 << 20)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_writes_nothing_outside(runner, tmp_path, name):
    with pytest.raises(runner.Unusable):
        unpacked(runner, tmp_path, HOSTILE[name])
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "code", "inside", "outputs"}
    assert [path.name for path in (tmp_path / "inside").iterdir()] == ["folder"]
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("code", "said", "loaded", "told"),
    [
        (0, FOUND + OK, True, {"status": "ok", "result": 1}),
        (0, FOUND, True, "without returning"),
        (0, b"", False, "without returning"),
        (3, FOUND + OK, True, "exit code 3"),
        (-11, FOUND, True, "signal 11"),
        (0, FOUND + OK + OK, True, "own form"),
        (0, FOUND + OK + b"more", True, "own form"),
        (0, FOUND + b'{"status": "ok"}\n', True, "own form"),
        (0, FOUND + b'{"status": "ok", "result": 1, "more": 1}\n', True, "own form"),
        (0, FOUND + b'{"status": "error", "error": 1, "traceback": ""}\n', True, "own form"),
        (0, FOUND + b"[" * 100_000 + b"\n", True, "own form"),
        (0, FOUND + b'{"status": "ok", "result": "' + b"x" * (1 << 20) + b'"}\n', True, "larger"),
        (0, OK, False, {"status": "ok", "result": 1}),
    ],
)
def test_what_a_child_said_is_read_with_its_end(runner, code, said, loaded, told):
    found, report = runner.read_report(code, said)
    assert found == loaded
    if isinstance(told, dict):
        assert report == told
    else:
        assert report["status"] == "error"
        assert told in report["error"]


BAD = [0, False]


@pytest.mark.parametrize(
    ("result", "score"),
    [
        ([0.5, True], [0.5, True]),
        ([1, False], [1, False]),
        ([float("inf"), True], BAD),
        ([True, True], BAD),
        ([0.5, 1], BAD),
        ([0.5], BAD),
        ("ab", BAD),
        (None, BAD),
    ],
)
def test_a_score_is_a_finite_number_and_a_truth(runner, result, score):
    assert runner.score_of({"status": "ok", "result": result}) == score


class Rude(Exception):
    """An exception whose words cannot be had."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_any_exception_becomes_an_envelope_that_the_site_takes(runner):
    for error in (Rude(), ValueError("a\0b\ud800"), ValueError("x" * 10**6), SystemExit(None), MemoryError()):
        try:
            raise error
        except BaseException as caught:  # noqa: BLE001 - whatever a function may raise
            report = runner.told(caught)
        assert len(report["error"]) <= 2000
        assert parse_result(json.dumps(report).encode()) == report


@pytest.mark.parametrize("there", ["file", "link", "folder", "link to a folder", "nothing"])
def test_the_envelope_replaces_whatever_is_there_and_follows_nothing(runner, tmp_path, there):
    target, outside = tmp_path / "outputs" / "result.json", tmp_path / "outside"
    outside.write_text("kept")
    if there == "file":
        target.write_text("forged")
    elif there == "folder":
        (target / "x").mkdir(parents=True)
    elif there != "nothing":
        target.symlink_to(outside if there == "link" else tmp_path)
    runner.write_envelope({"status": "ok", "result": 1})
    assert json.loads(target.read_text()) == {"status": "ok", "result": 1}
    assert not target.is_symlink()
    assert outside.read_text() == "kept"


@pytest.mark.parametrize(("user", "parent"), [(0, 1), (1000, 77)])
def test_others_are_killed_only_in_a_sandbox(runner, monkeypatch, user, parent):
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("the machine's processes"))
    runner.kill_others()
