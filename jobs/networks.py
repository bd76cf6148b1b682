"""Jobs that were admitted with a network wait where the engine grants none: they neither start nor hold anybody up."""

from collections.abc import Iterator

from environments.models import Engine
from jobs.models import Job

# Of a queued job `q`: it was promised no network, or its engine grants one.
GRANTED_SQL = """(NOT COALESCE((q.terms->>'network')::boolean, false) OR EXISTS (
               SELECT FROM environments_environment v JOIN environments_engine n ON n.id = v.engine_id
                WHERE v.id = q.environment_id AND n.network_granted))"""


def was_promised(job: Job) -> bool:
    """Whether the job was admitted with a network; what its environment says now changes nothing."""
    return bool(job.terms.get("network"))


def network_reasons(job: Job) -> Iterator[str]:
    """Why a job that was promised a network gets none now, if so."""
    if was_promised(job) and (reason := network_reason(job.environment.engine)):
        yield reason


def network_reason(engine: Engine) -> str:
    """Why nobody gets a network on this engine; empty when it grants one.

    Clients read it: what the trial found, which may name addresses of the host, stands on the engine's page.
    """
    if engine.network_granted:
        return ""
    if engine.network_tried_at is None:
        return f"engine {engine.name} was not tried for a network yet"
    return f"engine {engine.name} grants no network"
