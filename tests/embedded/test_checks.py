import pytest

from compute_site.embedded import checks
from compute_site.embedded.checks import Check


def test_all_run_and_one_failure_is_enough(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    three = [
        Check("first", lambda: ""),
        Check("second", lambda: "line 3 is wrong"),
        Check("third", lambda: ""),
    ]
    monkeypatch.setattr(checks, "CHECKS", three)
    assert checks.check([]) == 1
    shown = capfd.readouterr().out
    assert "line 3 is wrong" in shown
    assert "third: ok" in shown
    assert shown.splitlines()[-1].endswith("2 of 3 checks passed; failed: second")

    monkeypatch.setattr(checks, "CHECKS", three[:1])
    assert checks.check([]) == 0


def test_a_program_passes_only_with_code_0():
    assert checks.program("true")() == ""
    assert checks.program("sh", "-c", "echo why; exit 3")() == "why\n"
    assert checks.program("false")() == "code 1"
