"""`python -m computesite`."""

from .cli import app

app()
