"""The command line against a real site, as a process of its own would use it."""

import pytest
from typer.testing import CliRunner

from compute_site.embedded.fakes import FakeLium
from computesite.cli import app
from jobs.tokens import make_token
from providers import ending, observing, renting
from providers.models import Pod, ProviderAccount
from tests.factories import make_user

IMAGE = "registry.example.org:5000/site/agent:1.0@sha256:" + "ab" * 32


@pytest.fixture
def cli(live_server, monkeypatch):
    user = make_user("olga")
    user.is_staff = True
    user.save()
    _, token = make_token(user, ["admin"])
    monkeypatch.setenv("COMPUTESITE_URL", live_server.url)
    monkeypatch.setenv("COMPUTESITE_TOKEN", token)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("providers.renting.knock", lambda *_: None)
    return lambda *arguments: CliRunner().invoke(app, ["provider", *arguments])


@pytest.fixture
def lium():
    with FakeLium() as fake:
        yield fake


@pytest.fixture
def account(lium, transactional_db):
    row = ProviderAccount.objects.create(
        name="lium", kind="lium", base_url=lium.url, daily_cap=20, monthly_cap=20, max_pods=2
    )
    row.set_key(lium.key)
    return row


RENT = ("rent", "--account", "lium", "--image", IMAGE, "--gpu-type", "H200")


def test_a_providers_words_do_not_steer_the_terminal(cli, account, lium):
    lium.executors[0]["machine_name"] = "[red]H200[/red]\x1b[2J"
    assert "[red]H200[/red]\\x1b[2J" in cli("offers", "--gpu-type", "h200").output


def test_the_whole_story(cli, account, lium):
    shown = cli("offers", "--gpu-type", "h200")
    assert shown.exit_code == 0
    assert ["lium", "NVIDIA", "H200", "1-8", "2.5", "20"] in [
        line.split()[:6] for line in shown.output.splitlines()
    ]
    rented = cli(*RENT, "--max-price", "3", "--hours", "2", "--env", "A=b=c")
    assert rented.exit_code == 0, rented.output
    pod = Pod.objects.get()
    assert (pod.spec["image"], pod.spec["tag"]) == ("registry.example.org:5000/site/agent", "1.0")
    assert pod.spec["env"] == {"A": "b=c"}
    assert (str(pod.allowed_per_hour)[:2], pod.lifetime_hours) == ("3.", 2)
    renting.rent(pod.pk)
    observing.observe_pods()
    assert f"{pod.name}  lium     provisioning" in cli("pods").output
    ended = cli("terminate", pod.name)
    assert "terminating" in ended.output
    ending.check_pod_terminations()
    assert not lium.pods
    for _ in range(3):
        observing.observe_pods()
    assert pod.name not in cli("pods").output
    assert "terminated" in cli("pods", "--all").output


REFUSED = [
    (("--max-price", "3"), 2, "--hours"),
    (("--hours", "2"), 2, "--max-price"),
    (("--max-price", "3", "--hours", "0.5"), 1, "at least one hour"),
    (("--max-price", "11", "--hours", "2"), 1, "daily cap is 20 USD"),
]


def test_both_caps_are_asked_for_and_kept(cli, account, lium):
    for arguments, code, words in REFUSED:
        refused = cli(*RENT, *arguments)
        assert refused.exit_code == code
        assert words in refused.output
    assert not Pod.objects.exists()
    assert lium.requests == []


def test_what_is_not_there(cli, account, monkeypatch):
    assert "There is no pod x" in cli("terminate", "x").output
    monkeypatch.setenv("COMPUTESITE_TOKEN", "cs_wrong")
    assert cli("pods").exit_code == 1
    monkeypatch.setenv("COMPUTESITE_TOKEN", "")
    assert "Set COMPUTESITE_TOKEN." in cli("pods").output
    monkeypatch.setenv("COMPUTESITE_TOKEN", "x")
    monkeypatch.setenv("COMPUTESITE_URL", "http://127.0.0.1:1")
    assert "does not answer" in cli("pods").output
