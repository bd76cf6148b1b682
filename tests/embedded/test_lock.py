import subprocess
import sys
from pathlib import Path

import pytest

from compute_site.embedded.lock import FolderLock
from compute_site.embedded.progress import Failed

HOLDS = """
import sys, time
from pathlib import Path
from compute_site.embedded.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.take()
print("held", flush=True)
time.sleep(600)
"""


def holding(folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    process.stdout.close()
    return process


def test_a_second_holder_is_refused_at_once(tmp_path: Path):
    process = holding(tmp_path)
    try:
        with pytest.raises(Failed, match="already"):
            FolderLock(tmp_path).take()
        assert FolderLock(tmp_path).holder() == process.pid
    finally:
        process.kill()
        process.wait()
    lock = FolderLock(tmp_path)
    lock.take()  # Its holder died without a word.
    lock.release()


def test_end_holder_stops_it_and_says_whether_there_was_one(tmp_path: Path):
    assert not FolderLock(tmp_path).end_holder()
    process = holding(tmp_path)
    assert FolderLock(tmp_path).end_holder()
    assert process.wait() != 0
    assert not FolderLock(tmp_path).end_holder()
