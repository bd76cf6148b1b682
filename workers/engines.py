"""An engine as this process reaches it: one client each, what it said of itself, and its workspaces."""

import threading
from contextlib import closing
from dataclasses import dataclass
from typing import cast

from django.conf import settings

from compute_site.core.errors import SiteError
from environments.models import Engine
from workers.sandbox.docker import EngineClient, EngineFacts, Tls
from workers.sandbox.workspace import Disk, Mode, Trace, Workspace
from workers.sandbox.workspaces import open_workspace, traces

ALIVE_SECONDS = 5.0  # a living engine tells its version in milliseconds


class WrongEngine(SiteError):
    """Another engine answers at the endpoint than the one that was registered: nothing there is ours to judge."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One engine with its client and facts. Threads share it."""

    engine: Engine
    client: EngineClient
    facts: EngineFacts

    def workspace(self, name: str, image_id: str = "") -> Workspace:
        """The workspace of the attempt with this container name; costs nothing and touches nothing."""
        return open_workspace(
            name,
            site=settings.SITE_ID,
            mode=cast(Mode, self.engine.workspace_mode),
            disk=cast(Disk, self.engine.disk_mode),
            client=self.client,
            state_dir=str(settings.STATE_DIR),
            launcher=settings.LAUNCHER,
            image_id=image_id,
        )

    def traces(self) -> list[Trace]:
        """Everything of our workspaces that exists on the engine."""
        mode = cast(Mode, self.engine.workspace_mode)
        return traces(site=settings.SITE_ID, mode=mode, client=self.client, state_dir=str(settings.STATE_DIR))


_connections: dict[int, Connection] = {}
_lock = threading.Lock()


def client_for(engine: Engine) -> EngineClient:
    """A new client for the engine's endpoint; nothing is sent yet."""
    return EngineClient(engine.endpoint, tls=tls_of(engine))


def tls_of(engine: Engine) -> Tls | None:
    """The files by which the engine is reached, None for one without TLS."""
    return Tls(engine.tls_ca, engine.tls_certificate, engine.tls_key) if engine.tls_ca else None


def connect(engine: Engine) -> Connection:
    """This process's connection to the engine. Raises EngineUnreachable, or WrongEngine when its id has changed."""
    with _lock:
        known = _connections.get(engine.pk)
        if known is None:
            client = client_for(engine)
            known = _connections[engine.pk] = Connection(engine, client, checked(engine, client.facts()))
        return known


def disconnect(engine: Engine) -> None:
    """Forget the connection, so that the next one asks the engine again who it is."""
    with _lock:
        known = _connections.pop(engine.pk, None)
    if known is not None:
        known.client.close()


def confirm_alive(connection: Connection) -> None:
    """Ask the engine something on a new connection. Raises EngineUnreachable.

    An engine that is shutting down still answers on those it has, while it stops its containers.
    """
    fresh = client_for(connection.engine)
    fresh.timeout = ALIVE_SECONDS
    with closing(fresh):
        _ = fresh.api  # agrees on the version of the API


def checked(engine: Engine, facts: EngineFacts) -> EngineFacts:
    """`facts` when they are of the registered engine. Raises WrongEngine."""
    if engine.docker_id and facts.engine_id != engine.docker_id:
        raise WrongEngine(
            f"{engine.endpoint} is engine {facts.engine_id}, not {engine.docker_id} as registered for {engine.name}. "
            "If the old one is gone for ever, declare its host gone and register this one under a new name."
        )
    return facts
