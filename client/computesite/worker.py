"""`computesite worker …`: remote workers of the fleet, seen, started and retired."""

import json
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from .agent import Agent
from .showing import console, site, table
from .site import Refused, Site

commands = typer.Typer(no_args_is_help=True, help="Remote workers: agents on machines of their owners.")
AsJson = Annotated[bool, typer.Option("--json", help="The site's own answer, for programs.")]
ACTIVE_SECONDS = 60.0  # an agent that is not active by then is ended
LOCAL, LATER = "local", ("lium", "targon")
SHORT = 8  # characters of an id: enough to tell two rows apart


@commands.command()
def status(as_json: AsJson = False) -> None:
    """Every remote worker: whose it is, how it is, and what was found wrong."""
    with site() as here:
        rows = fleet(here)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)


@commands.command()
def retire(
    worker: Annotated[str, typer.Argument(metavar="ID", help="The whole id, or the 8 characters shown.")],
    as_json: AsJson = False,
) -> None:
    """Retire a worker for ever: its agent ends. For owners of its account and the staff of a site."""
    with site() as here:
        found = [row for row in fleet(here) if worker in (row["id"], _short(row["id"]))]
        if len(found) != 1:
            raise Refused(
                f"There is no worker {worker}."
                if not found
                else f"Several end in {worker}: name the whole id."
            )
        retired = here.post(f"/workers/{found[0]['id']}/retire")
    if as_json:
        print(json.dumps(retired, indent=2))
    else:
        show([retired])


@commands.command()
def deploy(
    *,
    provider: Annotated[str, typer.Option(help="Where it runs; local: on this machine.")],
    config: Annotated[
        Path, typer.Option(help="The agent's settings: docs/examples/agent.yaml, or of prepare_fleet.")
    ],
    python: Annotated[str, typer.Option(help="The Python of the site's checkout; default: this one.")] = "",
    checkout: Annotated[Path, typer.Option(help="A checkout of the site, which has the agent.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Start an agent; it goes on by itself once it is active, and is ended when it is not within 60 s."""
    with site() as here:
        if provider in LATER:
            raise Refused(f"--provider {provider} is not there yet; --provider {LOCAL} runs on this machine.")
        if provider != LOCAL:
            raise Refused(f"--provider: {provider!r} is none of {LOCAL}, {', '.join(LATER)}.")
        agent = Agent.prepared(config, checkout, python, here.url)
        before = _seen(agent, fleet(here)).get("last_seen")
        with agent.started():
            row = agent.wait(lambda: _active(agent, here, before), ACTIVE_SECONDS)
    if as_json:
        print(json.dumps({**row, "pid": agent.pid, "log": str(agent.log)}, indent=2))
    else:
        show([row])
        console.print(f"active; process {agent.pid}, log {agent.log}", markup=False, highlight=False)
        console.print(
            f"to end it: computesite worker retire {_short(row['id'])}", markup=False, highlight=False
        )


def fleet(here: Site) -> list[dict[str, Any]]:
    """The remote workers of the site. Raises Refused, also where the fleet is off."""
    try:
        rows: list[dict[str, Any]] = here.get("/workers")
    except Refused as refused:
        if refused.status == HTTPStatus.NOT_FOUND:
            raise Refused("This site has no fleet: FLEET_ENABLED is off there.") from None
        raise
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """One line for each worker."""
    now = datetime.now(UTC)
    table(
        ("worker", "owner", "provider", "status", "faults", "last seen"),
        (
            (
                _short(row["id"]),
                _short(row["owner"]),
                row["provider"] or "-",
                row["status"],
                str(row["faults"]),
                age(row["last_seen"], now),
            )
            for row in rows
        ),
    )


def age(moment: str | None, now: datetime) -> str:
    """How long ago, in one unit."""
    if moment is None:
        return "never"
    seconds = max(0, int((now - datetime.fromisoformat(moment)).total_seconds()))
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name} ago"
    return f"{seconds} s ago"


def _short(public_id: str) -> str:
    return public_id[-SHORT:]


def _seen(agent: Agent, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return next((row for row in rows if row["key"] == agent.key), {})


def _active(agent: Agent, here: Site, before: str | None) -> tuple[dict[str, Any] | None, str]:
    """The worker once this agent has made it active, and what is to be said until then.

    A sign of life from `before` the start is an earlier agent's, whose silence the site has not noticed yet.
    """
    row = _seen(agent, fleet(here))
    if row and row["status"] == "active" and row["last_seen"] != before:
        return row, ""
    return None, f"the site has it as {row['status']}" if row else "it has not registered"
