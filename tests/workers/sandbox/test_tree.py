"""The safe reader, the deleter and the measurer against hostile folders, with someone changing them meanwhile."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.workers.sandbox import hostile
from workers.sandbox.outputs import LISTED, OutputFile, OutputLimits, Outputs, escaped
from workers.sandbox.removal import UNMEASURABLE, delete_tree, measure_tree
from workers.sandbox.tree import read_tree

LIMITS = OutputLimits()


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield root
    finally:
        os.close(root)


def read(
    folder: Path, limits: OutputLimits = LIMITS, sink: Callable[[OutputFile, BinaryIO], None] | None = None
) -> tuple[Outputs, dict[str, bytes]]:
    """The outputs and the content that the sink was given, by hash."""
    given: dict[str, bytes] = {}

    def keep(file: OutputFile, content: BinaryIO) -> None:
        assert file.sha256 not in given
        given[file.sha256] = content.read()
        if sink:
            sink(file, content)

    before = len(os.listdir("/proc/self/fd"))
    with opened(folder) as root:
        outputs = read_tree(root, limits, keep)
    assert len(os.listdir("/proc/self/fd")) <= before  # less when a socket of another test was just collected
    return outputs, given


def refusals(outputs: Outputs) -> dict[str, str]:
    return {refused.path: refused.reason for refused in outputs.refused}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "outputs"
    place.mkdir()
    yield place
    delete_tree(str(place))  # pytest's own deleter would not survive the depth
    assert not place.exists()


def test_every_hostile_entry_is_refused_and_every_good_one_taken(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(hostile.SECRET)
    hostile.plant(folder, outside)
    outputs, given = read(folder)
    taken = {file.path: (file.size, file.sha256) for file in outputs.files}
    assert taken == {path: (len(data), hostile.sha256(data)) for path, data in hostile.GOOD.items()}
    assert refusals(outputs) == hostile.REFUSED | hostile.ONLY_IN_A_FOLDER
    assert set(given.values()) == set(hostile.GOOD.values())
    assert outputs.total_bytes == sum(map(len, hostile.GOOD.values()))
    assert outputs.stopped == ""


def test_content_of_several_names_is_given_once(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / name).write_bytes(b"same")
    os.link(folder / "a", folder / "c")
    outputs, given = read(folder)
    assert [file.path for file in sorted(outputs.files, key=lambda file: file.path)] == ["a", "b", "c"]
    assert list(given.values()) == [b"same"]


def test_too_many_files_stop_the_walk(folder: Path) -> None:
    hostile.crowd(folder, 20_000)
    began = time.process_time()
    outputs, _ = read(folder)
    assert outputs.stopped == "too_many_files"
    assert len(outputs.files) == LIMITS.max_files
    assert time.process_time() - began < 3


def test_too_many_refused_entries_stop_the_walk_and_the_list_stays_short(folder: Path) -> None:
    for number in range(500):
        os.symlink("/", folder / str(number))
    outputs, _ = read(folder, replace(LIMITS, max_entries=400))
    assert outputs.stopped == "too_many_entries"
    assert outputs.refused_counts == {"symlink": 400}
    assert len(outputs.refused) == LISTED


def test_more_folders_in_a_folder_than_descriptors(folder: Path) -> None:
    for number in range(2000):
        (folder / str(number)).mkdir()
        (folder / str(number) / "f").write_bytes(b"x")
    outputs, _ = read(folder)
    assert len(outputs.files) == 2000


@pytest.mark.parametrize(
    ("limits", "taken", "reason"),
    [
        ({"max_file_bytes": 9}, ["b", "c"], "file_too_large"),
        ({"max_bytes": 9}, ["b", "c"], "total_too_large"),
        ({"max_depth": 1}, ["a", "b"], "too_deep"),
        ({"max_path": 2}, ["a", "b"], "path_too_long"),
    ],
)
def test_caps(folder: Path, limits: dict[str, Any], taken: list[str], reason: str) -> None:
    (folder / "a").write_bytes(b"x" * 10)
    (folder / "b").write_bytes(b"1")
    (folder / "d").mkdir()
    (folder / "d" / "c").write_bytes(b"2")
    outputs, _ = read(folder, replace(LIMITS, **limits))
    assert sorted(os.path.basename(file.path) for file in outputs.files) == taken
    assert set(outputs.refused_counts) == {reason}


@pytest.mark.parametrize("kind", ["symlink", "fifo", "other", "gone", "grown"])
def test_a_file_that_changes_after_it_was_judged_is_never_followed(
    folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret!")
    victim = folder / "victim"
    victim.write_bytes(b"victim!")
    genuine = os.open

    def swap() -> None:
        if kind == "grown":
            victim.write_bytes(b"victim! and more")
            return
        victim.unlink()
        if kind == "symlink":
            victim.symlink_to(secret)
        elif kind == "fifo":
            os.mkfifo(victim)
        elif kind == "other":
            os.rename(secret, victim)

    def between(path: Any, *arguments: Any, **options: Any) -> int:
        if path == b"victim":
            swap()
        return genuine(path, *arguments, **options)

    monkeypatch.setattr("workers.sandbox.tree.os.open", between)
    outputs, given = read(folder)
    assert outputs.files == []
    assert given == {}
    assert set(outputs.refused_counts) <= {"unreadable", "changed_while_read"}


def test_a_folder_that_becomes_a_symlink_is_not_entered(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_bytes(b"secret")
    (folder / "file").write_bytes(b"x")
    (folder / "sub").mkdir()
    genuine = os.open

    def between(path: Any, *arguments: Any, **options: Any) -> int:
        if path == b"sub":
            (folder / "sub").rmdir()
            (folder / "sub").symlink_to(tmp_path / "elsewhere")
        return genuine(path, *arguments, **options)

    monkeypatch.setattr("workers.sandbox.tree.os.open", between)
    outputs, _ = read(folder)
    assert [file.path for file in outputs.files] == ["file"]
    assert refusals(outputs) == {"sub": "unreadable"}


def test_an_error_of_the_sink_is_not_swallowed(folder: Path) -> None:
    (folder / "file").write_bytes(b"x")

    def full(file: OutputFile, content: BinaryIO) -> None:
        raise OSError("no space")

    with opened(folder) as root, pytest.raises(OSError, match="no space"):
        read_tree(root, LIMITS, full)


def test_escaped_is_short_printable_ascii() -> None:
    assert escaped(b"plain/name") == "plain/name"
    assert escaped(b"\xff\n\x1b") == "\\xff\\x0a\\x1b"
    text = escaped("\u202e".encode() * 5000)
    assert len(text) <= 300
    assert text.isascii()
    assert text.isprintable()


def test_delete_leaves_what_links_point_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    folder = tmp_path / "outputs"
    folder.mkdir()
    hostile.plant(folder, outside / "kept")
    (folder / "to-outside").symlink_to(outside)
    (folder / "d" / "e").mkdir()
    delete_tree(str(folder))
    assert not folder.exists()
    assert (outside / "kept").read_bytes() == b"kept"
    delete_tree(str(folder))  # a missing one is fine


def test_measure_counts_blocks_once_at_any_depth(folder: Path) -> None:
    empty = measure_tree(str(folder))
    hostile.dig(folder, 500)
    deep = measure_tree(str(folder))
    assert deep == empty + 500 * 4096
    (folder / "file").write_bytes(b"x" * 100_000)
    os.link(folder / "file", folder / "again")
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert measure_tree(str(folder)) == deep + 102_400  # 25 blocks of 4096
    assert measure_tree(str(folder / "missing")) == 0


def test_what_cannot_be_measured_counts_as_too_much(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile.crowd(folder, 60)
    monkeypatch.setattr("workers.sandbox.removal.MEASURED", 50)
    assert measure_tree(str(folder)) == UNMEASURABLE
