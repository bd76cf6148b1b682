"""Contents: stored once, whole or not at all, and removed only when nobody has them."""

import hashlib
import os
import time
from io import BytesIO
from pathlib import Path

import pytest
from django.core.files.storage import default_storage

from jobs.models import Artifact
from jobs.outcome import StoredFile
from jobs.results import (
    GRACE_SECONDS,
    ContentMismatch,
    build_manifest,
    open_artifact,
    remove_strays,
    remove_unreferenced,
    storage_key,
    store_output,
)
from tests.factories import submit, take


def store(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    store_output(BytesIO(data), digest, len(data))
    return digest


def stored(digest: str) -> Path:
    return Path(default_storage.path(storage_key(digest)))


def age(digest: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(stored(digest), (then, then))


def test_content_is_stored_under_its_hash_and_read_back(db):
    digest = store(b"some bytes \xff\x00")
    assert stored(digest).read_bytes() == b"some bytes \xff\x00"
    with open_artifact(Artifact(sha256=digest)) as content:
        assert content.read() == b"some bytes \xff\x00"


def test_content_that_is_there_is_not_read_again_but_kept_fresh():
    digest = store(b"twice")
    age(digest, 10_000)

    class Unreadable(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise AssertionError("was read")

    store_output(Unreadable(), digest, 5)
    assert stored(digest).stat().st_mtime > time.time() - 100


@pytest.mark.parametrize(("data", "size"), [(b"abc", 2), (b"abc", 4), (b"abd", 3), (b"", 3)])
def test_other_bytes_than_promised_are_not_stored(data, size):
    digest = hashlib.sha256(b"abc").hexdigest()
    stored(digest).unlink(missing_ok=True)
    with pytest.raises(ContentMismatch):
        store_output(BytesIO(data), digest, size)
    assert not stored(digest).exists()
    assert not list(stored(digest).parent.glob(".*"))


def test_a_broken_content_is_replaced():
    digest = store(b"whole")
    stored(digest).write_bytes(b"wh")
    store(b"whole")
    assert stored(digest).read_bytes() == b"whole"


def test_large_content_takes_little_memory():
    class Zeros:
        left = 64 << 20
        largest = 0

        def read(self, size: int) -> bytes:
            Zeros.largest = max(self.largest, size)
            size = min(size, self.left)
            self.left -= size
            return bytes(size)

    expected = hashlib.sha256(bytes(64 << 20)).hexdigest()
    store_output(Zeros(), expected, 64 << 20)  # type: ignore[arg-type]
    assert Zeros.largest <= 1 << 20
    stored(expected).unlink()


def test_the_manifest_is_canonical():
    files = [StoredFile("b", 1, "2" * 64), StoredFile("ä", 2, "1" * 64)]
    manifest, digest = build_manifest(3, files)
    assert [entry["path"] for entry in manifest["files"]] == ["b", "ä"]
    assert build_manifest(3, reversed(files)) == (manifest, digest)
    assert build_manifest(4, files)[1] != digest
    ones, twos = "1" * 64, "2" * 64
    text = (
        f'{{"exit_code":3,"files":[{{"path":"b","sha256":"{twos}","size":1}},'
        f'{{"path":"ä","sha256":"{ones}","size":2}}],"refused":[],"version":1}}'
    )
    assert hashlib.sha256(text.encode()).hexdigest() == digest


def test_what_an_artifact_refers_to_stays(site, user, account):
    digest = store(b"used")
    age(digest, 10_000)
    attempt = take(submit(user))
    Artifact.objects.create(job=attempt.job, attempt=attempt, path="x", size=4, sha256=digest)
    assert remove_unreferenced([digest], before=time.time()) == 0
    assert stored(digest).exists()
    Artifact.objects.all().delete()
    assert remove_unreferenced([digest], before=time.time()) == 1
    assert not stored(digest).exists()
    assert remove_unreferenced([digest], before=time.time()) == 0


def test_what_an_attempt_may_still_settle_stays(db):
    digest = store(b"fresh")
    assert remove_unreferenced([digest], before=time.time() - 60) == 0
    assert stored(digest).exists()


def test_what_is_asked_for_while_it_is_removed_is_put_back(db, monkeypatch):
    digest = store(b"race")
    age(digest, 10_000)
    replace = Path.replace

    def freshened_just_before(path: Path, target: Path) -> Path:
        if not path.name.startswith("."):
            store(b"race")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", freshened_just_before)
    assert remove_unreferenced([digest], before=time.time() - 100) == 0
    assert stored(digest).read_bytes() == b"race"


def test_strays_go_after_the_grace(db):
    old, fresh = store(b"old stray"), store(b"fresh stray")
    age(old, GRACE_SECONDS + 10)
    half = stored(old).with_name(".half.part")
    half.write_bytes(b"x")
    os.utime(half, (1, 1))
    remove_strays()
    assert (stored(old).exists(), half.exists(), stored(fresh).exists()) == (False, False, True)
