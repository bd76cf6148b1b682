"""Log bytes through the whole path: every byte, in order, and only what is beyond the cap is cut."""

from django.conf import settings

from tests.faults.site import FaultSite

# As `printf` writes them: bytes that are no text, NUL, no end of line at the end.
STRANGE = rb"caf\351\377\0 \303\050 \r\n\033[2J last"
STRANGE_BYTES = b"caf\xe9\xff\x00 \xc3\x28 \r\n\x1b[2J last"
BORDER = """
import os, sys
for size in (16383, 16384, 16385, 65536, 262143, 262145):
    os.write(1, b"\\xc3\\xa9" * (size // 2) + b"x" * (size % 2))
os.write(2, b"e" * 100000)
"""
BORDER_BYTES = b"".join(
    b"\xc3\xa9" * (size // 2) + b"x" * (size % 2) for size in (16383, 16384, 16385, 65536, 262143, 262145)
)


def test_bytes_arrive_as_they_were_written(site: FaultSite) -> None:
    place = site.place(cpu=2)
    site.worker(place)
    strange = site.submit(place, "printf", STRANGE.decode())
    border = site.submit(place, "python3", "-c", BORDER)
    site.wait_clean(strange, border)
    assert site.log(strange).content == STRANGE_BYTES
    assert site.log(border).content == BORDER_BYTES
    assert site.log(border, "stderr").content == b"e" * 100_000
    page = site.log(border, after=16_380, limit=10)
    assert (page.content, page["X-Next-Offset"]) == (BORDER_BYTES[16_380:16_390], "16390")


def test_the_log_can_be_read_while_the_job_runs(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    job = site.shell(place, "echo first; sleep 3; echo second")
    site.wait_status(job, "running")
    site.until(lambda: site.log(job).content == b"first\n")
    assert site.log(job)["X-Log-Complete"] == "false"
    site.wait_clean(job)
    assert site.log(job).content == b"first\nsecond\n"
    assert site.log(job)["X-Log-Complete"] == "true"


def test_a_flood_is_cut_at_the_cap_and_the_cut_is_counted(site: FaultSite) -> None:
    place = site.place()
    site.worker(place)
    cap = settings.LOG_CAP_BYTES
    job = site.shell(place, "yes | head -c 30000000; echo end >&2")
    site.wait_clean(job)
    answer = site.log(job)
    assert answer.content == (b"y\n" * cap)[:cap]
    assert int(answer["X-Log-Bytes-Cut"]) == 30_000_000 - cap
    assert site.detail(job)["usage"]["stdout_cut"] == 30_000_000 - cap
    assert site.log(job, "stderr").content == b"end\n"


def test_a_short_job_loses_no_byte(site: FaultSite) -> None:
    place = site.place(cpu=2)
    site.worker(place)
    jobs = [site.submit(place, "printf", f"world {number}") for number in range(20)]
    site.wait_clean(*jobs)
    assert [site.log(job).content for job in jobs] == [f"world {number}".encode() for number in range(20)]
