"""`computesite provider …`: rent machines and give them back."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .showing import console, site, table
from .site import Refused, Site

commands = typer.Typer(no_args_is_help=True, help="Rented machines (pods). For the staff of a site.")
ON_ITS_WAY = ("intent", "requested", "unknown")
OVER = ("terminated", "failed")
POLL_SECONDS = 1.0


@commands.command()
def offers(
    account: Annotated[str, typer.Option(help="Only this account.")] = "",
    gpu_type: Annotated[str, typer.Option(help="Part of the GPU's name.")] = "",
    max_price: Annotated[str, typer.Option(help="USD per GPU and hour.")] = "",
) -> None:
    """What can be rented now, cheapest first."""
    with site() as here:
        rows = here.get("/providers/offers", account=account, gpu_type=gpu_type, max_price=max_price)
    table(
        ("account", "GPU", "count", "USD/GPU/h", "USD/h", "offer"),
        [
            (
                one["account"],
                one["gpu_type"],
                _count(one),
                one["price_per_gpu_hour"],
                one["price_per_hour"],
                one["id"],
            )
            for one in rows
        ],
    )


@commands.command()
def rent(
    *,
    account: Annotated[str, typer.Option(help="Whose budget pays.")],
    image: Annotated[str, typer.Option(help="NAME[:TAG]@sha256:…; the digest is required.")],
    max_price: Annotated[str, typer.Option(help="USD per GPU and hour; nothing dearer is rented.")],
    hours: Annotated[float, typer.Option(help="Longest life, at least 1; cut to whole hours.")],
    gpu_type: Annotated[str, typer.Option(help="Part of the GPU's name.")] = "",
    gpus: Annotated[int, typer.Option(help="How many.")] = 1,
    offer: Annotated[str, typer.Option(help="Only this offer, if it keeps the caps.")] = "",
    ssh_key: Annotated[list[Path] | None, typer.Option(help="A public key's file; may be repeated.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; no secrets; may be repeated.")] = None,
    wait: Annotated[bool, typer.Option(help="Until it runs, or is over.")] = False,
) -> None:
    """Rent one pod under both caps."""
    name, _, digest = image.partition("@")
    repository, tag = _split(name)
    body: dict[str, Any] = {
        "account": account, "image": repository, "tag": tag, "digest": digest, "gpu_type": gpu_type,
        "gpu_count": gpus, "max_price_per_hour": max_price, "max_lifetime_hours": hours, "offer_id": offer,
        "ssh_keys": [path.read_text().strip() for path in ssh_key or []],
        "env": dict(pair.partition("=")[::2] for pair in env or []),
    }  # fmt: skip
    with site() as here:
        pod = here.post("/providers/pods", body)
        if wait:
            pod = _follow(here, pod, (*ON_ITS_WAY, "provisioning"))
    _show([pod])
    if pod["status"] in OVER:
        console.print(pod["last_error"] or pod["end_reason"], style="red", markup=False)
        raise typer.Exit(1)


@commands.command()
def pods(all: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False) -> None:
    """Pods that live."""
    with site() as here:
        _show(here.get("/providers/pods", all="true" if all else None))


@commands.command()
def terminate(
    pod: Annotated[str, typer.Argument(help="Name or id.")],
    wait: Annotated[
        bool, typer.Option(help="Until the provider's listing has lacked it three times.")
    ] = False,
) -> None:
    """End a pod."""
    with site() as here:
        found = [one for one in here.get("/providers/pods", all="true") if pod in (one["id"], one["name"])]
        if not found:
            raise Refused(f"There is no pod {pod}.")
        ended = here.post(f"/providers/pods/{found[0]['id']}/terminate")
        if wait:
            ended = _follow(here, ended, (*ON_ITS_WAY, "provisioning", "running", "terminating"))
    _show([ended])


def _follow(here: Site, pod: dict[str, Any], while_in: tuple[str, ...]) -> dict[str, Any]:
    while pod["status"] in while_in:
        time.sleep(POLL_SECONDS)
        pod = here.get(f"/providers/pods/{pod['id']}")
    return pod


def _show(rows: list[dict[str, Any]]) -> None:
    table(
        ("pod", "account", "status", "why", "GPUs", "USD/h", "cap", "at most so far", "deadline"),
        [
            (
                one["name"], one["account"], one["status"], one["end_reason"], str(one["gpu_count"]),
                one["price_per_hour"] or "", one["price_cap"], one["cost_so_far"], (one["deadline"] or "")[:19],
            )
            for one in rows
        ],
    )  # fmt: skip


def _count(offer: dict[str, Any]) -> str:
    least, most = offer["smallest"], offer["gpu_count"]
    return str(most) if least == most else f"{least}-{most}"


def _split(name: str) -> tuple[str, str]:
    """Repository and tag; a colon before a slash belongs to the registry's port."""
    head, colon, tail = name.rpartition(":")
    return (head, tail) if colon and "/" not in tail else (name, "")
