import os
import stat
from pathlib import Path

import psycopg
import pytest

from compute_site.embedded import postgres
from compute_site.embedded.paths import Places
from compute_site.embedded.postgres import Postgres
from compute_site.embedded.progress import Failed


def query(url: str, text: str) -> object:
    with psycopg.connect(url.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        cursor = connection.execute(text)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_starts_answers_and_keeps_its_data_over_a_stop(places: Places):
    server = Postgres(places, durable=False, use_existing=False)
    server.start()
    try:
        assert query(server.url, "SHOW max_connections") == "200"
        assert query(server.url, "SHOW listen_addresses") == ""
        assert query(server.url, "SHOW fsync") == "off"
        query(server.url, "CREATE TABLE kept (id int)")
    finally:
        server.stop()
    assert not server.ready()
    server.stop()  # Safe to repeat.

    again = Postgres(places, durable=True, use_existing=False)
    again.start()
    try:
        assert query(again.url, "SELECT count(*) FROM kept") == 0
        assert query(again.url, "SHOW fsync") == "on"
    finally:
        again.stop()
    assert list((places.sockets / "pg").iterdir()) == []


def test_its_folders_are_private_and_never_roots(places: Places):
    server = Postgres(places, durable=False, use_existing=False)
    server.start()
    try:
        for folder in (server.folder, server.folder / "data", places.sockets / "pg"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert os.getuid() != 0 or folder.stat().st_uid != 0
        wrong = server.url.replace(":" + server._password() + "@", ":wrong@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            query(wrong, "SELECT 1")
    finally:
        server.stop()


def test_the_wheels_programs_run(places: Places, monkeypatch: pytest.MonkeyPatch):
    programs = postgres.wheel_programs()
    assert programs, "the wheel is part of the locked requirements"
    monkeypatch.setattr(postgres, "find_programs", lambda version="": programs[0])
    server = Postgres(places, durable=False, use_existing=False)
    server.start()
    try:
        assert query(server.url, "SELECT 1") == 1
    finally:
        server.stop()


def test_programs_in_a_closed_checkout_are_copied(
    places: Places, monkeypatch: pytest.MonkeyPatch, as_root: None
):
    programs = postgres.wheel_programs()[0]
    monkeypatch.setattr(postgres, "find_programs", lambda version="": programs)
    monkeypatch.setattr(postgres, "open_to", lambda folder, user: folder != programs)
    server = Postgres(places, durable=False, use_existing=False)
    server.start()
    try:
        assert query(server.url, "SELECT 1") == 1
        assert Path(f"/proc/{server.pid}/exe").resolve().is_relative_to(places.root)
    finally:
        server.stop()


def test_data_of_another_version_are_refused_untouched(places: Places):
    server = Postgres(places, durable=False, use_existing=False)
    (server.folder / "data").mkdir(parents=True)
    (server.folder / "data" / "PG_VERSION").write_text("7\n")
    with pytest.raises(Failed, match="PostgreSQL 7"):
        server.start()
    assert [path.name for path in (server.folder / "data").iterdir()] == ["PG_VERSION"]


def test_a_named_database_is_used_and_nothing_started(places: Places, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/db")
    server = Postgres(places)
    server.start()
    assert server.given
    assert server.url == "postgres://elsewhere/db"
    assert not (places.root / "postgres").exists()
