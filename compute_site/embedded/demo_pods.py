"""`./run demo --pods`: one machine rented at each of two imitated providers, and both given back at their deadline."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from . import demo_view as view
from .demo import farewell, options
from .fakes import FakeLium, FakeTargon
from .paths import REPOSITORY, RUN
from .processes import PREPARED
from .progress import Failed

Check = Callable[[], None]
MAX_PRICE, HOURS = 3, 1  # USD per GPU and hour; hours.
IMAGE = "registry.example.org/site/agent:1.0@sha256:" + "5e" * 32
PASSES = 12
OURS = RUN / "prepared-pods.json"


def main(environment: Mapping[str, str], arguments: list[str], check: Check) -> None:
    """Tell the story against the site at `SITE_URL`; raises `Failed` when it does not go as it should."""
    lium, targon = (
        FakeLium(f"lium-{secrets.token_urlsafe(16)}"),
        FakeTargon(f"targon-{secrets.token_urlsafe(16)}"),
    )
    with lium, targon:
        lium.polls_to_boot = targon.polls_to_boot = 1
        fakes = {"lium": lium, "targon": targon}
        manage = _Program(environment, "manage.py")
        manage.run("prepare_pods_demo", "--lium", lium.url, "--targon", targon.url, "--output", str(OURS),
                   LIUM_KEY=lium.key, TARGON_KEY=targon.key)  # fmt: skip
        token = json.loads(OURS.read_text())["token"]
        client = _Program(
            {**environment, "PYTHONPATH": str(REPOSITORY / "client"), "COLUMNS": "200",
             "COMPUTESITE_URL": environment["SITE_URL"], "COMPUTESITE_TOKEN": token},
            "-m", "computesite", "provider",
        )  # fmt: skip
        rent(client, fakes, check)
        wrong = let_the_deadline_pass(manage, client, fakes, check)
        wrong += bills(fakes)
    farewell(environment["SITE_URL"], json.loads(PREPARED.read_text()), options(arguments).once)
    if wrong:
        raise Failed(f"The demo did not go as it should: {'; '.join(wrong)}")


class _Program:
    """A Python program that is run to its end with some words in front."""

    def __init__(self, environment: Mapping[str, str], *words: str) -> None:
        self._environment = {**os.environ, **environment}
        self._words = words

    def run(self, *arguments: str, **more: str) -> str:
        """What it printed; raises `Failed` with its words when it refused."""
        done = subprocess.run(
            [sys.executable, *self._words, *arguments],
            cwd=REPOSITORY, env={**self._environment, **more}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Failed(f"{' '.join(arguments[:2])}: {(done.stderr or done.stdout).strip()[-2000:]}")
        return done.stdout

    def show(self, *arguments: str) -> None:
        """Run it, with the command and its output on the terminal."""
        shown = " ".join(word[:-52] + "…" if "@sha256:" in word else word for word in arguments)
        view.line("$", f"computesite provider {shown}", view.BOLD)
        for line in self.run(*arguments).splitlines():
            view.line("", line.rstrip())


def rent(client: _Program, fakes: Mapping[str, Any], check: Check) -> None:
    """Offers of both, then one pod at each, under both caps."""
    view.title("What two providers offer (imitated, on loopback)")
    client.show("offers", "--gpu-type", "H200", "--max-price", str(MAX_PRICE))
    view.title(f"One GPU at each: at most {MAX_PRICE} USD per hour, at most {HOURS} hour")
    for account in fakes:
        check()
        client.show(
            "rent", "--account", account, "--image", IMAGE, "--gpu-type", "H200",
            "--max-price", str(MAX_PRICE), "--hours", str(HOURS), "--wait",
        )  # fmt: skip
    for account, fake in fakes.items():
        view.line(account, f"lists {len(listed(fake))} pod")


def let_the_deadline_pass(
    manage: _Program, client: _Program, fakes: Mapping[str, Any], check: Check
) -> list[str]:
    """Judge by a clock that is an hour ahead until nothing lives; returns what went wrong."""
    view.title(f"{HOURS} hour later (the site's passes with --ahead {HOURS * 3600 + 60})")
    for number in range(1, PASSES + 1):
        check()
        alive = manage.run("check_pods", "--ahead", str(HOURS * 3600 + 60)).split("\n")
        counts = ", ".join(f"{account} lists {len(listed(fake))}" for account, fake in fakes.items())
        states = sorted({line.split()[2] for line in alive if line.strip()})
        view.line(f"pass {number}", f"{counts}; the site says {' and '.join(states) or 'all terminated'}")
        if not states:
            break
    client.show("pods", "--all")
    wrong = [f"{account} still lists {listed(fake)}" for account, fake in fakes.items() if listed(fake)]
    return wrong + (["the site has not seen their end"] if states else [])


def listed(fake: Any) -> list[str]:
    """What the provider itself has."""
    return list(fake.pods if isinstance(fake, FakeLium) else fake.workloads)


def bills(fakes: Mapping[str, Any]) -> list[str]:
    """What each provider billed, by its own book; returns what is above the cap."""
    view.title("The bill, by the providers' own books")
    wrong = []
    for account, fake in fakes.items():
        cost, cap = fake.cost(), MAX_PRICE * HOURS
        view.line(
            account, f"{cost:.4f} USD billed, {cap} USD committed", view.GREEN if cost <= cap else view.RED
        )
        if cost > cap:
            wrong.append(f"{account} billed {cost:.2f} USD")
    return wrong
