import subprocess

from compute_site.embedded.__main__ import COMMANDS
from compute_site.embedded.paths import REPOSITORY


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(REPOSITORY / "run"), *arguments], capture_output=True, text=True, check=False)


def test_help_names_every_command():
    shown = run("help")
    assert shown.returncode == 0
    for name in (*COMMANDS, "lock"):
        assert f"\n  {name} " in shown.stdout


def test_an_unknown_command_is_refused_with_the_list():
    shown = run("frobnicate")
    assert shown.returncode == 2
    assert "./run COMMAND" in shown.stderr


def test_the_embedded_package_needs_no_django_settings():
    code = (
        "import sys, compute_site.embedded.__main__\n"
        "assert 'compute_site.settings' not in sys.modules\n"
        "assert 'django.db' not in sys.modules\n"
    )
    python = REPOSITORY / ".run/venv/bin/python"
    assert subprocess.run([str(python), "-c", code], cwd=REPOSITORY, check=False).returncode == 0
