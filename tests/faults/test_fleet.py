"""The agent's own program with real containers, at a site that listens."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as site_settings
from pytest_django.live_server_helper import LiveServer

from jobs.logs import read_log
from jobs.models import Artifact
from jobs.results import read_content
from tests.faults.agents import FleetSite, Proxy, make_fleet_site, passes
from tests.faults.observing import Starts
from tests.faults.processes import eventually
from tests.faults.site import FaultSite
from workers.fleet.models import Audit, Fault, FleetPolicy, Replica

WRITE = "echo at it; echo 42 > /data/outputs/answer.txt"


@pytest.fixture(scope="module")
def listening(fault_site: FaultSite) -> Iterator[str]:
    """The site's web server, in a thread; the address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_settings, "FLEET_ENABLED", True)
        server = LiveServer("127.0.0.1")
        try:
            yield server.url
        finally:
            server.stop()


@pytest.fixture
def fleet(site: FaultSite, listening: str, tmp_path: Path) -> Iterator[FleetSite]:
    made = make_fleet_site(site, listening, tmp_path)
    with passes():
        yield made
        made.end()


def test_two_owners_agree_and_the_job_is_settled_once(fleet: FleetSite) -> None:
    fleet.start("north", "east")
    job = fleet.site.wait_final(fleet.submit(WRITE, outputs=["answer.txt"]))
    assert (job.status, job.end_reason, job.exit_code) == ("succeeded", "succeeded", 0)
    unit = fleet.unit(job)
    assert (unit.status, unit.degraded) == ("completed", False)
    assert {replica.status for replica in unit.replicas.all()} == {"reported"}
    assert set(unit.replicas.values_list("owner__account__name", flat=True)) == {"owner north", "owner east"}
    artifact = Artifact.objects.get(job=job)
    assert artifact.path == "answer.txt"
    assert read_content(artifact.sha256) == b"42\n"
    assert fleet.site.events(job).count("succeeded") == 1
    assert read_log(job.attempts.get(), "stdout")[0] == b"at it\n"
    assert not Audit.objects.filter(unit=unit).exists()


def test_a_lie_is_disputed_audited_and_one_fault(fleet: FleetSite) -> None:
    fleet.site.worker(fleet.audits)
    fleet.start("north", "south", liar="south")
    job = fleet.site.wait_final(fleet.submit(WRITE, outputs=["answer.txt"]))
    assert (job.status, job.end_reason) == ("failed", "fleet_disputed")
    unit = fleet.unit(job)
    audit = Audit.objects.get(unit=unit)
    with fleet.site.beat():
        fleet.site.wait_clean(audit.job)
        eventually(lambda: Audit.objects.exclude(status="pending").filter(unit=unit).exists())
    audit.refresh_from_db()
    assert (audit.status, audit.job.environment) == ("mismatch_resolved", fleet.audits.environment)
    fault = Fault.objects.get(unit=unit)
    assert fault.worker.owner.account.name == "owner south"
    assert fault.expected == audit.manifest_sha256 != fault.found
    assert not Artifact.objects.filter(job=job).exists()
    assert fleet.unit(job).status == "disputed"


def test_a_lost_answer_and_a_kill_never_run_it_again(fleet: FleetSite) -> None:
    FleetPolicy.objects.filter(environment=fleet.environment.environment).update(replicas=1)
    with Proxy(fleet.url) as proxy:
        (agent,) = fleet.start("west", url=proxy.url)
        with Starts(fleet.site.docker_host, agent.told["name"]) as starts:
            job = fleet.submit(WRITE, outputs=["answer.txt"])
            assert proxy.stored.wait(30)
            agent.kill()
            replica = Replica.objects.get(unit=fleet.unit(job))
            assert (replica.status, len(agent.kept)) == ("reported", 1)
            settled = fleet.site.wait_final(job)
            agent.start()
            eventually(lambda: not agent.kept, words="it has delivered what it kept")
            assert proxy.results == 2
            assert starts.of(fleet.unit(job).public_id) == [1]
        again = fleet.site.wait_final(job)
        assert (again.status, again.finished_at) == ("succeeded", settled.finished_at)
        assert Artifact.objects.filter(job=job).count() == 1
        assert Replica.objects.get(pk=replica.pk).finished_at == replica.finished_at
        fleet.end()
