"""The demo's output: readable, and not steered by what a job prints."""

import pytest

from compute_site.embedded import demo_view as view


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_no_colour_where_it_is_not_wanted(monkeypatch, variable):
    monkeypatch.setattr("sys.stdout.isatty", lambda: bool(variable))
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    assert view.paint("text", view.RED) == "text"


def test_colour_on_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert view.paint("text", view.RED) == "\x1b[31mtext\x1b[0m"
    assert view.paint("text") == "text"


def test_a_job_cannot_steer_the_terminal():
    assert view.printable("\x1b[2Jred\r\x07 é") == "\\x1b[2Jred\\r\\x07 é"


def test_durations_add_up_per_stage():
    events = [
        {"kind": kind, "created_at": f"2026-01-01T00:00:{second:09.6f}Z"}
        for kind, second in [
            ("queued", 0),
            ("preparing", 0.25),
            ("queued", 1),
            ("preparing", 3),
            ("failed", 4.5),
        ]
    ]
    assert view.durations(events) == [("queued", 2.25), ("preparing", 2.25)]


def test_sizes():
    assert [view.size(count) for count in (0, 9_999, 10_240, 3 << 20)] == [
        "0 bytes",
        "9,999 bytes",
        "10.0 KiB",
        "3.0 MiB",
    ]
