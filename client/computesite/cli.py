"""`computesite …`: one group of commands per part of the API."""

import typer

from . import provider, token, worker

app = typer.Typer(
    no_args_is_help=True, help="The command line of Compute Site.", pretty_exceptions_enable=False
)
app.add_typer(provider.commands, name="provider")
app.add_typer(token.commands, name="token")
app.add_typer(worker.commands, name="worker")


@app.callback()
def root() -> None:
    """COMPUTESITE_URL and COMPUTESITE_TOKEN say which site, and who asks."""
