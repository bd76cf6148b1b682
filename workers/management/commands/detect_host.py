"""`manage.py detect_host [--engine NAME] [--nvml FILE]`: ask engines again what they and their hosts have."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from compute_site.core.errors import SiteError
from environments.described_nvml import DescribedNVML
from environments.models import Engine, EngineKind
from workers.registration import detect


class Command(BaseCommand):
    help = "Detect cores, memory, disk and what the engine can do, through the engine itself."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--engine", help="Only this engine (default: all).")
        parser.add_argument(
            "--nvml",
            metavar="FILE",
            help="Describe devices in place of NVML (JSON), to try a site without GPUs.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        engines = Engine.objects.filter(kind=EngineKind.DOCKER).select_related("host")
        if options["engine"]:
            engines = engines.filter(name=options["engine"])
        if not engines:
            raise CommandError(
                "There is no such engine. Make one with: manage.py register_engine NAME ENDPOINT"
            )
        library = described(options["nvml"])
        for engine in engines:
            try:
                warnings = detect(engine, library)
            except ValidationError as error:
                raise CommandError(f"{engine.name}: {'; '.join(error.messages)}") from error
            except SiteError as error:
                raise CommandError(f"{engine.name}: {error}") from error
            describe(self, engine, warnings)


def described(path: str | None) -> DescribedNVML | None:
    """The library that answers from this file; None without one. Raises CommandError."""
    try:
        return DescribedNVML.from_file(path) if path else None
    except (OSError, ValueError) as error:
        raise CommandError(f"--nvml: {error}") from error


def describe(command: BaseCommand, engine: Engine, warnings: list[str]) -> None:
    """Print what was found, one line, and each warning."""
    host = engine.host
    assert host is not None
    host.refresh_from_db()
    command.stdout.write(
        f"{engine.name} on {host.name}: {host.cpu_count} cores, {host.memory_mib} MiB memory, {host.disk_mib} MiB disk, "
        f"{host.devices.count()} devices, {host.architecture}; workspace {engine.workspace_mode}, disk {engine.disk_mode}"
    )
    for warning in warnings:
        command.stdout.write(command.style.WARNING(f"  {warning}"))
