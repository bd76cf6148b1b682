"""The envelope is a claim: what outranks it, and when it stands."""

import pytest

from workers.envelope import judge
from workers.verdict import Verdict

OK = {"status": "ok", "result": 1}
ERROR = {"status": "error", "error": "ValueError: x", "traceback": ""}
WELL, ONE = Verdict("succeeded", "", 0), Verdict("exit_nonzero", "exit code 1", 1)


@pytest.mark.parametrize(
    ("verdict", "envelope", "reason", "stands"),
    [
        (WELL, OK, "succeeded", True),
        (WELL, ERROR, "no_result", False),
        (WELL, None, "no_result", False),
        (WELL, [], "no_result", False),
        (WELL, {"status": "ok"}, "no_result", False),
        (WELL, {**OK, "more": 1}, "no_result", False),
        (ONE, ERROR, "function_error", True),
        (ONE, OK, "exit_nonzero", False),
        (ONE, None, "exit_nonzero", False),
        (ONE, {"status": "error", "error": 1}, "exit_nonzero", False),
        (Verdict("exit_nonzero", "exit code 3", 3), ERROR, "exit_nonzero", False),
        *(
            (Verdict(reason, "", 137), envelope, reason, False)
            for reason in ("out_of_memory", "killed", "time_limit", "engine_lost", "cancelled", "disk_limit")
            for envelope in (OK, ERROR)
        ),
    ],
)
def test_what_the_end_has_shown_comes_first(verdict, envelope, reason, stands):
    found, kept = judge(verdict, envelope, "")
    assert found.reason == reason
    assert kept == (envelope if stands else None)
    assert found.exit_code == verdict.exit_code


def test_why_there_is_no_result_is_told():
    assert judge(WELL, None, "not UTF-8 at byte 3")[0].detail == "not UTF-8 at byte 3"
    assert judge(WELL, None, "")[0].detail == "result.json is missing"


def test_an_error_is_shown_bounded():
    found, _ = judge(ONE, {**ERROR, "error": "x" * 10_000}, "")
    assert found.detail == "x" * 2000
