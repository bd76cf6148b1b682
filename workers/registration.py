"""Registering an engine: ask it who it is, try what it can do, and write host, cores and engine into rows."""

import logging
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

from compute_site.core.errors import SiteError
from compute_site.core.models import save_clean
from environments import nvml
from environments.benchmark import keep_host_in_step
from environments.detection import HostFacts, record_engine, record_host
from environments.devices import record_devices
from environments.models import Engine, Host
from workers.engines import WrongEngine, client_for, disconnect
from workers.sandbox.docker import EngineClient, EngineFacts, EngineUnreachable
from workers.sandbox.probe import Probe, probe

log = logging.getLogger(__name__)


class NotUsable(SiteError):
    """The engine answers, but cannot keep the sandbox's promises; the message says what is missing."""


def register_engine(name: str, endpoint: str, host_name: str, **fields: Any) -> tuple[Engine, list[str]]:
    """Make (or refresh) host and engine of these names from what the engine reports; returns it with warnings.

    A new engine is disabled until it has an environment and is activated. Raises ValidationError, EngineUnreachable,
    WrongEngine, NotUsable; then nothing was written but the names, and perhaps what the host has.
    """
    engine = Engine.objects.filter(name=name).select_related("host").first()
    if engine is None:
        host = Host.objects.filter(name=host_name).first() or save_clean(Host(name=host_name))
        engine = save_clean(Engine(name=name, host=host, endpoint=endpoint, **fields))
    elif engine.endpoint != endpoint:
        engine.endpoint = endpoint
        save_clean(engine)
    return engine, detect(engine)


def detect(engine: Engine, nvml_library: Any = None) -> list[str]:
    """Ask the engine again, and write what it says into its host and itself; returns warnings. Raises as above.

    NVIDIA devices are looked for where the engine's socket is of this machine; `nvml_library` stands in for pynvml.
    """
    if engine.host is None:
        raise ValidationError({"host": "A fleet engine has no host to detect."})
    client = client_for(engine)
    try:
        facts = client.facts()
    except EngineUnreachable as error:
        raise EngineUnreachable(
            f"{error.detail}. Nothing was detected: start the engine or correct its endpoint {engine.endpoint}, or enter"
            f" cores, memory and disk of host {engine.host} by hand in the admin"
        ) from error
    if engine.docker_id and engine.docker_id != facts.engine_id:
        raise WrongEngine(
            f"{engine.endpoint} is another engine than before ({facts.engine_id}, was {engine.docker_id}). "
            "Register it under a new name; if the old one is gone for ever, declare its host gone."
        )
    found = _probe(client, facts)
    warnings = _record(engine, engine.host, facts, nvml_library)
    details = {**asdict(facts), **asdict(found)}
    record_engine(engine, facts, found, details)
    disconnect(engine)
    return [*warnings, *found.notes]


def look_again(engine: Engine, facts: HostFacts, nvml_library: Any = None) -> None:
    """What a worker does when it starts: write what the host has now, devices whose driver came late too.

    `facts` are those of the engine's connection. Nothing is tried out. What fails is a line in the log that says what to
    do: the host stays as it was, and the worker starts all the same.
    """
    assert engine.host is not None
    try:
        warnings = _record(engine, engine.host, facts, nvml_library)
    except ValidationError as error:
        log.error("host %s was not detected again: %s", engine.host, " ".join(error.messages))
        return
    for warning in warnings:
        log.warning("%s", warning)


def _record(engine: Engine, host: Host, facts: HostFacts, nvml_library: Any) -> list[str]:
    """Sizes, devices, and whoever measures the host; returns warnings."""
    warnings = record_host(host, facts, engine) + detect_devices(engine, nvml_library)
    try:
        return [*warnings, *keep_host_in_step(host)]
    except ValidationError as error:
        return [*warnings, f"the benchmark of {host} is as before: {' '.join(error.messages)}"]


def detect_devices(engine: Engine, nvml_library: Any = None) -> list[str]:
    """Look for NVIDIA devices and write them into the engine's host; returns warnings, also when nobody could look.

    Then the devices stay as they are.
    """
    assert engine.host is not None
    if not engine.endpoint.startswith("unix:"):
        return [
            f"NVIDIA devices were not looked for: {engine} is on another machine. Enter them by hand in the admin, or run"
            " detect_host there."
        ]
    try:
        facts = nvml.detect_devices(nvml_library) if nvml_library is not None else nvml.detect_devices()
    except nvml.NVMLUnavailable as error:
        return [str(error)]
    return record_devices(engine.host, facts)


def _probe(client: EngineClient, facts: EngineFacts) -> Probe:
    if not facts.seccomp:
        raise NotUsable(
            "the engine runs containers without its default seccomp profile; enable it in dockerd"
        )
    image = client.image(settings.SANDBOX_IMAGE)
    if image is None:
        raise NotUsable(
            f"the engine has no image {settings.SANDBOX_IMAGE} to try things with: make it with docker/base/build, or with"
            " manage.py provide_sandbox_image"
        )
    return probe(
        client,
        state_dir=str(settings.STATE_DIR),
        launcher=settings.LAUNCHER,
        site=settings.SITE_ID,
        image=image,
        facts=facts,
    )
