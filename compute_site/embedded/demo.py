"""The demo: real jobs through the REST API, shown live. Knows the site only by its address and a token."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from . import demo_view as view
from .demo_client import Client
from .demo_plan import LIMITS, Limit, iris_job, limit_job
from .demo_result import show_artifacts, show_bill, show_result, show_times
from .processes import PREPARED
from .progress import Failed

Check = Callable[[], None]
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 180
FINAL = frozenset({"succeeded", "failed", "cancelled", "expired"})
OVER = FINAL | {"collecting"}


def main(environment: Mapping[str, str], arguments: list[str], check: Check) -> None:
    """Run the story against the site at `SITE_URL` and show it.

    Reads what `manage.py prepare_demo` has written: token, admin, one-time password. `check` raises `Failed` when a
    process of the site has ended; so do we when the site refuses, and when a job did not end as it should.
    """
    once = options(arguments).once
    url, site = environment["SITE_URL"], json.loads(PREPARED.read_text())
    client = Client(url, site["token"])
    offers = offered(client, site["environments"])
    iris = client.submit(iris_job(offers))
    others = [(limit, client.submit(limit_job(limit, offers))) for limit in LIMITS]
    wrong = [*follow(client, iris, check), *limits_at_work(client, others, check)]
    wrong += show_bill(client, [iris["id"], *(job["id"] for _, job in others)])
    farewell(url, site, once)
    if wrong:
        raise Failed(f"The demo did not go as it should: {'; '.join(wrong)}")


def options(arguments: list[str]) -> argparse.Namespace:
    """The demo's own command line."""
    parser = argparse.ArgumentParser(prog="./run demo", description="Start a site and run real jobs on it.")
    parser.add_argument("--pods", action="store_true", help="rent machines at two imitated providers instead")
    parser.add_argument("--once", action="store_true", help="end after the result, leave nothing behind")
    parser.add_argument("--fleet", action="store_true", help="three remote workers, one of whom lies")
    return parser.parse_args(arguments)


def offered(client: Client, ours: Collection[str]) -> list[dict[str, Any]]:
    """Show all environments; returns those whose name is in `ours`: no other is sure to have a worker here."""
    offers = client.environments()
    view.title("What this site offers")
    for offer in offers:
        view.line(offer["name"], _offer_text(offer))
    found = [offer for offer in offers if offer["name"] in ours]
    if not found:
        raise Failed(
            f"The site offers none of the demo's environments ({', '.join(ours) or 'there are none'}): see in the admin"
            " whether they are retired, or closed to its client."
        )
    return found


def _offer_text(offer: Mapping[str, Any]) -> str:
    amounts = {slug: resource["total"] for slug, resource in offer["resources"].items()}
    cores = amounts.pop("cpu", 0)
    parts = [f"{cores} core{'s' * (cores != 1)}"]
    parts += [
        f"{amounts.pop(slug, 0) / 1024:.1f} GiB {name}"
        for slug, name in (("ram", "memory"), ("disk", "disk"))
    ]
    parts += [f"{amount} {slug}" for slug, amount in amounts.items()]
    ways = ["free tier"] * bool(offer["free_tier"])
    ways += [f"prices in {price_list['currency']}" for price_list in offer["prices"]]
    return " · ".join([*parts, " and ".join(ways)])


def follow(client: Client, job: dict[str, Any], check: Check) -> list[str]:
    """Show one job from its queue to its result; returns what went wrong with it."""
    view.title("A real job: fit and evaluate a classifier on 150 Iris flowers")
    view.line("job", f"{job['id']} in {job['environment']['name']}, {_tier_text(job)}")
    job = watch(client, job["id"], check)
    if job["status"] != "succeeded":
        view.line("why", f"{job['end_message']} {job['end_detail']}", view.RED)
        view.line(
            "stderr", view.printable(client.log(job["id"], 0, "stderr")[0].decode(errors="replace")[-2000:])
        )
        return [f"the Iris job ended as {job['end_reason']}"]
    show_result(job)
    differing = show_artifacts(client, job["id"])
    show_times(client, job)
    return [f"the sha256 of {path} differs" for path in differing]


def _tier_text(job: Mapping[str, Any]) -> str:
    amounts = job["resources"]
    tier = "free tier" if job["tier"] == "free" else "paid"
    return f"{tier}: cores {amounts['cpu']}, memory {amounts['ram']} MiB, disk {amounts['disk']} MiB"


def watch(client: Client, job_id: str, check: Check) -> dict[str, Any]:
    """Print each status and phase as it is reached, and the log as it grows; returns the final job."""
    shown, offset, tail, waited = ("", ""), 0, b"", 0.0
    while True:
        job = client.job(job_id)
        stage, is_over = (job["status"], job["phase"]), job["status"] in OVER
        if stage != shown and not is_over:
            view.status(job["status"], job["phase"] or _reason(job))
        if job["status"] != "queued":
            data, offset = client.log(job_id, offset)
            *whole, tail = (tail + data).split(b"\n")
            for text in (*whole, tail) if is_over and tail else whole:
                view.log_line(text.decode(errors="replace"))
            tail = b"" if is_over else tail
        if stage != shown and is_over:  # What it had to say comes before its end.
            view.status(job["status"], _exit_text(job))
        if job["status"] in FINAL:
            return job
        waited = _wait(0.0 if stage != shown else waited, job, check)
        shown = stage


def _exit_text(job: Mapping[str, Any]) -> str:
    return f"exit code {job['exit_code']}" if job["exit_code"] is not None else ""


def _wait(waited: float, job: Mapping[str, Any], check: Check) -> float:
    """A pause between two looks; a job that does not move at all ends the demo."""
    if waited > PATIENCE_SECONDS:
        raise Failed(
            f"Nothing moved for {PATIENCE_SECONDS} s ({_reason(job) or job['status']}): see the logs."
        )
    check()
    time.sleep(POLL_SECONDS)
    return waited + POLL_SECONDS


def _reason(job: Mapping[str, Any]) -> str:
    return job.get("pending_reason") or ""


def limits_at_work(client: Client, sent: list[tuple[Limit, dict[str, Any]]], check: Check) -> list[str]:
    """Wait for the jobs that run into a limit and show how each ended; returns what did not end as it must."""
    view.title("Three jobs that meet the limits of the sandbox")
    rows, wrong = [], []
    for limit, submitted in sent:
        job, waited = client.job(submitted["id"]), 0.0
        while job["status"] not in FINAL:
            waited = _wait(waited, job, check)
            job = client.job(submitted["id"])
        log = client.log(job["id"], 0)[0].decode(errors="replace").strip()
        last = view.printable(log.splitlines()[-1]) if log else ""
        rows.append((limit.tries, job["status"], job["end_reason"], f"{job['run_seconds'] or 0:.1f} s", last))
        if job["end_reason"] != limit.reason:
            wrong.append(
                f"{limit.program} ended as {job['end_reason']}, not {limit.reason}: {job['end_detail']}"
            )
    view.table(("the job tries", "ended", "reason", "ran", "its last words"), rows)
    return wrong


def farewell(url: str, site: Mapping[str, Any], once: bool) -> None:
    """Where the site is, and how to get in."""
    view.title("The site")
    view.line("admin", f"{url}/admin/")
    if site["admin_password"]:
        view.line("log in", f"{site['admin']} / {site['admin_password']}   (one-time: shown only now)")
    else:
        view.line(
            "log in",
            f"{site['admin']}, password unchanged (new one: manage.py changepassword {site['admin']})",
        )
    view.line("API", f"{url}/api/v1/docs")
    if not once:
        view.line("token", site["token"])
        view.line("", "Ctrl-C stops everything that was started.", view.DIM)
