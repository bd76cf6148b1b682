"""`computesite token …`: tokens of the site, made with name and password, printed once."""

from typing import Annotated, Any

import typer

from .showing import site
from .site import Site

commands = typer.Typer(no_args_is_help=True, help="Tokens: what a program shows to the site in place of you.")
SECONDS_PER_DAY = 86_400


@commands.command()
def create(
    *,
    user: Annotated[str, typer.Option(help="Your name at the site; its password is asked for.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read, submit, admin or fleet; may be repeated [read, submit].")
    ] = None,
    name: Annotated[str, typer.Option(help="What it is for; shown to the operator.")] = "",
    days: Annotated[int, typer.Option(help="How long it is good for; 0 = for ever.", min=0)] = 0,
) -> None:
    """Make a token and print it, once. It may do no more than you may."""
    password = typer.prompt("Password", hide_input=True, err=True)
    body: dict[str, Any] = {"name": name}
    body |= {"scopes": scope} if scope else {}
    body |= {"expires_in": days * SECONDS_PER_DAY} if days else {}
    with site(lambda: Site.with_password(user, password)) as here:
        made = here.post("/tokens", body)
    print(made["token"])


@commands.command()
def revoke() -> None:
    """Void the token of COMPUTESITE_TOKEN; whoever uses it is refused from now on."""
    with site() as here:
        here.delete("/tokens/current")
