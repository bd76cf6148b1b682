"""`manage.py import_environments FILE|-`: environments from a configuration of Ocean Node, plan first."""

import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from environments.importing import Choice, import_configuration, read_tokens, refusal_lines


class Command(BaseCommand):
    help = (
        "Make engines and environments as a file says. The plan is printed first; it is applied in one transaction or"
        " not at all. The same file again changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", help="A JSON file, or - for the standard input.")
        parser.add_argument(
            "--from-settings",
            action="store_true",
            help="Take DOCKER_COMPUTE_ENVIRONMENTS in place of a file.",
        )
        parser.add_argument(
            "--engine", default="", help="The engine that it is for (default: by its endpoint)."
        )
        parser.add_argument(
            "--host", default="", help="The host of the engine; a missing engine is made there, disabled."
        )
        parser.add_argument("--dry-run", action="store_true", help="Print the plan and change nothing.")
        parser.add_argument(
            "--replace",
            action="store_true",
            help="Retire the engine's environments that are not in the file.",
        )
        parser.add_argument("--activate", action="store_true", help="Activate a disabled engine afterwards.")
        parser.add_argument(
            "--token",
            action="append",
            default=[],
            metavar="CHAIN=ADDRESS",
            help="Fee token of a chain for prices that name none; may be repeated.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            choice = Choice(
                engine=options["engine"],
                host=options["host"],
                replace=options["replace"],
                activate=options["activate"],
                dry_run=True,
                tokens=read_tokens(options["token"]),
            )
            body = configuration_text(options)
            plan = import_configuration(body, choice)
            planned = list(plan.lines())
            self.stdout.write("\n".join(planned))
            if options["dry_run"]:
                self.stdout.write("dry run: nothing was written")
                return
            if not plan.changes_anything:
                return
            done = list(import_configuration(body, replace(choice, dry_run=False)).lines())
        except ValidationError as error:
            raise CommandError(refusal(error)) from error
        if done != planned:
            self.stdout.write("somebody else changed something meanwhile; what was done:\n" + "\n".join(done))
        self.stdout.write(self.style.SUCCESS("applied"))


def configuration_text(options: dict[str, Any]) -> bytes:
    """The configuration that the arguments name. Raises CommandError."""
    if options["from_settings"] == bool(options["file"]):
        raise CommandError("Name a file (or - for the standard input), or --from-settings; one of them.")
    if options["from_settings"]:
        return from_settings()
    try:
        return sys.stdin.buffer.read() if options["file"] == "-" else Path(options["file"]).read_bytes()
    except OSError as error:
        raise CommandError(f"{options['file']}: {error.strerror}") from error


def from_settings() -> bytes:
    """DOCKER_COMPUTE_ENVIRONMENTS: JSON, or @ and the path of a file. Raises CommandError."""
    text = settings.DOCKER_COMPUTE_ENVIRONMENTS.strip()
    if not text:
        raise CommandError("DOCKER_COMPUTE_ENVIRONMENTS is empty.")
    if not text.startswith("@"):
        return str(text).encode()
    try:
        return (settings.BASE_DIR / text[1:]).read_bytes()
    except OSError as error:
        raise CommandError(f"DOCKER_COMPUTE_ENVIRONMENTS: {text[1:]}: {error.strerror}") from error


def refusal(error: ValidationError) -> str:
    """Every refusal on a line of its own, with its path."""
    return "\n".join(["Refused; nothing was written.", *(f"  {line}" for line in refusal_lines(error))])
