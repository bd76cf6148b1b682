"""What came of the demo's job: the findings, the stored outputs with their hashes, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import demo_view as view
from .demo_client import Client


def show_result(job: Mapping[str, Any]) -> None:
    """The findings that the program wrote to result.json, and what it used."""
    found = job["result"]["result"]
    view.line(
        "result",
        f"accuracy {found['accuracy']:.4f} on {found['test']} held-out flowers,"
        f" {found['cross_validation']:.4f} in cross validation on the other {found['train']}",
        view.BOLD,
    )
    usage = job["usage"]
    if "cpu_seconds" in usage:  # remote workers do not say
        view.line(
            "used", f"CPU {usage['cpu_seconds']:.2f} s · peak memory {view.size(usage['peak_memory_bytes'])}"
        )


def show_artifacts(client: Client, job_id: str) -> list[str]:
    """List the stored outputs; each is downloaded and its sha256 compared. Returns those that differ."""
    differing = []
    for artifact in client.artifacts(job_id):
        same = client.sha256_of(job_id, artifact["path"]) == artifact["sha256"]
        if not same:
            differing.append(artifact["path"])
        verdict = view.paint("verified", view.GREEN) if same else view.paint("DIFFERS", view.RED)
        view.line(
            "artifact",
            f"{artifact['path']:<12} {view.size(artifact['size']):>12}  sha256 {artifact['sha256']}  {verdict}",
        )
    return differing


def show_bill(client: Client, job_ids: Sequence[str]) -> list[str]:
    """What each job cost and what is left of the balance; returns what does not add up."""
    view.title("The bill")
    wrong = []
    for job in map(client.job, job_ids):
        cost = job["cost"]
        text = f"{cost['amount']} {cost['currency']}" if cost else "nothing"
        view.line(job["tier"], f"{job['id']}  {text}")
        if cost and not cost["final"]:
            wrong.append(f"the bill of {job['id']} is not final")
    for balance in client.accounts()[0]["balances"]:
        view.line("balance", f"{balance['amount']} {balance['currency']}, of it held: {balance['held']}")
        if balance["held"] != "0":
            wrong.append(f"{balance['held']} {balance['currency']} are still held")
    return wrong


def show_times(client: Client, job: Mapping[str, Any]) -> None:
    """How long each stage took."""
    stages = view.durations(client.events(job["id"]))
    view.line("times", " · ".join(f"{stage} {spent:.2f} s" for stage, spent in stages))
