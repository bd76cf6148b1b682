"""Processes that test side by side get nothing in common but the services themselves."""

from pathlib import Path

from tests.apart import own_environment


def test_two_processes_share_no_folder_no_broker_database_and_no_site_name(tmp_path: Path) -> None:
    given = {
        "REDIS_URL": "redis://:secret@127.0.0.1:7000/0",
        "SITE_ID": "abcdefghijkl",
        "STATE_DIR": str(tmp_path / "state"),
        "DATA_DIR": str(tmp_path / "data"),
    }
    first, second = own_environment("gw0", given), own_environment("gw1", given)
    assert second == {
        "TESTS_BESIDE": "1",
        "REDIS_URL": "redis://:secret@127.0.0.1:7000/1",
        "SITE_ID": "abcdefghiw1",
        "STATE_DIR": str(tmp_path / "state/gw1"),
        "DATA_DIR": str(tmp_path / "data/gw1"),
    }
    assert not set(first.values()) & set(second.values())
    assert Path(second["STATE_DIR"]).is_dir()


def test_a_process_alone_keeps_what_it_was_given() -> None:
    assert own_environment("", {"SITE_ID": "local"}) == {}
