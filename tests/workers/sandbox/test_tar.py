"""The strict tar reader: streams that no file system could have produced, and broken ones."""

import io
import tarfile
from collections.abc import Callable
from typing import BinaryIO

import pytest

from workers.sandbox.outputs import OutputFile, OutputLimits, Outputs
from workers.sandbox.tar import EXTENDED, Malformed, SkipTooLarge, TarReader
from workers.sandbox.tar_outputs import read_tar


class Dribble(io.RawIOBase):
    """A source that gives at most 100 bytes at a time, as sockets do."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 100))


def packed(*members: tuple[str, bytes, dict[str, object]], form: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form, errors="surrogateescape") as archive:
        for name, content, fields in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for field, value in fields.items():
                setattr(entry, field, value)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def outputs_of(data: bytes) -> Outputs:
    def check(file: OutputFile, content: BinaryIO) -> None:
        assert len(content.read()) == file.size

    return read_tar("outputs", Dribble(data), OutputLimits(), check)  # type: ignore[arg-type]


def refusals(outputs: Outputs) -> dict[str, str]:
    return {refused.path: refused.reason for refused in outputs.refused}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_is_read_byte_for_byte(form: int) -> None:
    long = "outputs/" + "/".join(["folder" * 5] * 4) + "/file"
    outputs = outputs_of(
        packed(("outputs/a", b"1" * 1000, {}), (long, b"2", {}), ("outputs/e", b"", {}), form=form)
    )
    assert {file.path: file.size for file in outputs.files} == {"a": 1000, long[8:]: 1, "e": 0}
    assert outputs.refused == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("outputs/../../etc/passwd", "name_not_plain"),
        ("outputs/x/../y", "name_not_plain"),
        ("outputs/./y", "name_not_plain"),
        ("outputs//y", "name_not_plain"),
        ("/etc/passwd", "outside"),
        ("../outputs/x", "outside"),
        ("other/x", "outside"),
        ("outputs", "outside"),
        ("outputs/" + "n" * 256, "name_too_long"),
        ("outputs/a\x01b", "name_control_character"),
        ("outputs/a\udcffb", "name_not_utf8"),
    ],
)
def test_names_that_lead_out_are_refused_and_the_next_file_is_taken(name: str, reason: str) -> None:
    outputs = outputs_of(packed((name, b"evil", {}), ("outputs/good", b"ok", {})))
    assert [refused.reason for refused in outputs.refused] == [reason]
    assert [file.path for file in outputs.files] == ["good"]


def test_hard_links_only_to_files_that_were_taken() -> None:
    link: dict[str, object] = {"type": tarfile.LNKTYPE}
    outputs = outputs_of(
        packed(
            ("outputs/in", b"", link | {"linkname": "outputs/a"}),
            ("outputs/a", b"1", {}),
            ("outputs/again", b"", link | {"linkname": "outputs/a"}),
            ("outputs/out", b"", link | {"linkname": "/etc/passwd"}),
            ("outputs/up", b"", link | {"linkname": "outputs/../a"}),
        )
    )
    assert {file.path: file.size for file in outputs.files} == {"a": 1, "again": 1}
    assert refusals(outputs) == {name: "hard_link_outside" for name in ("in", "out", "up")}


def test_what_lies_in_a_refused_folder_is_passed_over() -> None:
    folder: dict[str, object] = {"type": tarfile.DIRTYPE}
    data = packed(
        ("outputs/a\x01", b"", folder),
        ("outputs/a\x01/x", b"1", {}),
        ("outputs/b", b"2", {}),
        ("outputs/a2", b"3", {}),
    )
    outputs = outputs_of(data)
    assert refusals(outputs) == {"a\\x01": "name_control_character"}
    assert [file.path for file in outputs.files] == ["b", "a2"]


def broken(change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(packed(("outputs/a", b"1", {}), form=tarfile.USTAR_FORMAT))
    change(data)
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + 256 + sum(data[156:512]))
    return bytes(data)


def test_negative_and_nonsense_sizes_are_malformed() -> None:
    for size in (b"\xff" * 12, b"00000000-10\0", b"12345678abc\0", b"\x81" + bytes(11)):
        with pytest.raises(Malformed):
            outputs_of(broken(lambda data, size=size: data.__setitem__(slice(124, 136), size)))  # type: ignore[misc]


def test_a_wrong_checksum_and_an_early_end_are_malformed() -> None:
    data = packed(("outputs/a", b"1" * 600, {}), form=tarfile.USTAR_FORMAT)
    with pytest.raises(Malformed, match="checksum"):
        outputs_of(data[:20] + b"x" + data[21:])
    for end in (0, 100, 512, 900, 1100):
        with pytest.raises(Malformed, match="ends early"):
            outputs_of(data[:end])


@pytest.mark.parametrize(
    "content",
    [
        b"x" * (EXTENDED + 1),
        b"5 a=b\n",
        b"999 a=b\n",
        b"a=b\n",
        b"0 \n",
        b"6 abc\n",
        b"-6 a=b\n",
        b"17 size=12345678x\n",
    ],
)
def test_extended_headers_are_bounded_and_exact(content: bytes) -> None:
    data = packed(
        ("pax", content, {"type": tarfile.XHDTYPE}), ("outputs/a", b"1", {}), form=tarfile.USTAR_FORMAT
    )
    with pytest.raises(Malformed):
        outputs_of(data)


def test_ten_thousand_extended_headers_in_a_row_do_not_recurse() -> None:
    header = packed(("pax", b"6 a=b\n", {"type": tarfile.XHDTYPE}), form=tarfile.USTAR_FORMAT)[:1024]
    outputs = outputs_of(header * 10_000 + packed(("outputs/a", b"1", {})))
    assert [file.path for file in outputs.files] == ["a"]


def test_passing_over_has_a_budget() -> None:
    reader = TarReader(io.BytesIO(packed(("a", b"1" * 5000, {}), ("b", b"2" * 5000, {}))), skip_budget=6000)
    with pytest.raises(SkipTooLarge):
        list(reader)
