"""What a token may be used for. A scope opens routes and gives no right: its user's own rights are asked as well."""

from django.db import models


class Scope(models.TextChoices):
    READ = "read", "look at environments, accounts and jobs"
    SUBMIT = "submit", "submit and cancel jobs"
    ADMIN = "admin", "import, export, rent; for the staff"
    FLEET = "fleet", "look at remote workers and retire them"


USUAL = (Scope.READ.value, Scope.SUBMIT.value)  # what a client of jobs needs
ANY = ""  # of a route that every token may use


def usual_scopes() -> list[str]:
    """The scopes of a token of which nothing else is said."""
    return list(USUAL)
