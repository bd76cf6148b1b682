"""The size of an engine's disk: of the file system that its data root is on, where that can be seen."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workers.sandbox.docker import EngineClient


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose file system was asked for; each has 100 MiB."""
    seen: list[str] = []

    def statvfs(path: Any) -> SimpleNamespace:
        seen.append(str(path))
        return SimpleNamespace(f_blocks=25_600, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    return seen


def info(client: EngineClient, monkeypatch: pytest.MonkeyPatch, root: str) -> int | None:
    raw: dict[str, Any] = {
        "ID": "x",
        "NCPU": 4,
        "MemTotal": 2**33,
        "Architecture": "x86_64",
        "OSType": "linux",
    }
    raw["DockerRootDir"] = root
    monkeypatch.setattr(EngineClient, "get", lambda self, path: raw)
    monkeypatch.setattr(EngineClient, "api", SimpleNamespace(api_version="1.41"), raising=False)
    facts = client.facts()
    assert (facts.cpu_count, facts.memory_mib) == (4, 8192)
    return facts.disk_mib


def test_it_is_that_of_the_data_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    assert info(EngineClient("unix:///run/docker.sock"), monkeypatch, str(tmp_path)) == 100
    assert asked == [str(tmp_path)]


@pytest.mark.parametrize("endpoint", ["tcp://far:2376", "unix:///run/docker.sock"])
def test_what_cannot_be_seen_is_not_known(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], endpoint: str
) -> None:
    root = "/" if endpoint.startswith("tcp") else "/no/such/folder"
    assert info(EngineClient(endpoint), monkeypatch, root) is None
    assert asked == []
