"""Log bytes: stored once whatever is shipped, read back exactly."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from jobs.logs import CHUNK_BYTES, LogGap, append_log, bytes_cut, read_log, shipped_offset
from jobs.models import Attempt, LogChunk
from tests.factories import submit, take


@pytest.fixture
def attempt(site, user, account) -> Attempt:
    return take(submit(user))


def everything(attempt, stream="stdout", step=1 << 20) -> bytes:
    data, at = b"", 0
    while piece := read_log(attempt, stream, at, step)[0]:
        data += piece
        at += len(piece)
    return data


def test_any_bytes_come_back_exactly(attempt):
    data = bytes(range(256)) * 3 + b"\xff\xfe\x00 no newline at the end"
    assert append_log(attempt, "stdout", 0, data) == len(data)
    assert read_log(attempt, "stdout") == (data, len(data))
    assert read_log(attempt, "stdout", 5, 7) == (data[5:12], 12)
    assert everything(attempt, step=11) == data
    assert read_log(attempt, "stderr") == (b"", 0)
    assert read_log(attempt, "stdout", len(data)) == (b"", len(data))
    assert read_log(attempt, "stdout", 10**6) == (b"", 10**6)


def test_repeated_and_overlapping_ships_change_nothing(attempt):
    data = random.Random(1).randbytes(5000)
    dice = random.Random(2)
    for _ in range(60):
        end = shipped_offset(attempt, "stdout")
        start = dice.randint(0, end)
        append_log(attempt, "stdout", start, data[start : start + dice.randint(0, 400)])
    end = shipped_offset(attempt, "stdout")
    assert end > 1000
    assert everything(attempt) == data[:end]


def test_large_ships_are_cut_into_chunks(attempt):
    data = random.Random(3).randbytes(2 * CHUNK_BYTES + 5)
    assert append_log(attempt, "stderr", 0, data) == len(data)
    assert LogChunk.objects.count() == 3
    assert everything(attempt, "stderr", step=100_001) == data


def test_a_gap_is_refused(attempt):
    append_log(attempt, "stdout", 0, b"abc")
    with pytest.raises(LogGap):
        append_log(attempt, "stdout", 4, b"x")
    assert everything(attempt) == b"abc"


def test_an_empty_ship_is_nothing(attempt):
    assert append_log(attempt, "stdout", 0, b"") == 0
    assert not LogChunk.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_watchers_at_once_store_each_byte_once(attempt):
    data = random.Random(4).randbytes(20_000)

    def ship(seed: int) -> None:
        dice = random.Random(seed)
        try:
            while (end := shipped_offset(attempt, "stdout")) < len(data):
                append_log(attempt, "stdout", end, data[end : end + dice.randint(1, 900)])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ship, range(4)))
    assert everything(attempt) == data


def test_cut_bytes_are_told_by_the_launcher(attempt):
    assert bytes_cut(attempt, "stdout") == 0
    attempt.exit_facts = {"marker": {"stdout_cut": 12, "stderr_cut": 0}}
    assert (bytes_cut(attempt, "stdout"), bytes_cut(attempt, "stderr")) == (12, 0)
    attempt.exit_facts = {"marker": None}
    assert bytes_cut(attempt, "stdout") == 0
