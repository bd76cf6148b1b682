"""Jobs with a network: what they were promised they get, behind a gate; whoever dies, nothing opens and nothing is left."""

import json
import time
from datetime import timedelta

import pytest
from django.conf import settings

from environments.editing import edited
from environments.models import Engine
from jobs.models import Attempt, Job
from tests.faults.processes import eventually
from tests.faults.site import FaultSite, Place
from tests.faults.test_kills import kills
from workers import granting, sweep
from workers.checkpoint import GATE_POINTS
from workers.engines import connect
from workers.fsck import disagreements
from workers.gates import body_of, gate_spec, stand
from workers.sandbox.docker import ContainerFacts
from workers.sandbox.gate import gate_labels, gate_name
from workers.sandbox.probe import PROBE_LIFE
from workers.sandbox.spec import labels_of
from workers.steps import Run

# Where the gate is on its way, where the job's container is, and where both have to go.
KILLED = (*GATE_POINTS, "created.after", "clean.removed")
INTERFACES = "grep -c eth0 /proc/net/dev; true"


def gate_of(site: FaultSite, place: Place, job: Job) -> ContainerFacts | None:
    return place.client.inspect(gate_name(site.attempt(job).container_name))


def test_a_job_keeps_the_network_that_it_was_admitted_with(site: FaultSite) -> None:
    place = site.place(enable_network=True)
    promised = site.shell(place, f"cat /data/job.json /etc/resolv.conf; {INTERFACES}")
    with edited(place.environment):
        type(place.environment).objects.filter(pk=place.environment.pk).update(enable_network=False)
    without = site.shell(place, f"cat /data/job.json; {INTERFACES}")
    site.worker(place)
    site.wait_clean(promised, without)
    lines = site.log(promised).content.decode().splitlines()
    told, names = lines[0].partition("}nameserver")[0] + "}", "\n".join(lines)
    assert json.loads(told)["network"] is True
    assert all(f"nameserver {address}" in names for address in settings.NETWORK_RESOLVERS)
    assert lines[-1] == "1"
    told, _, found = site.log(without).content.decode().rpartition("}")
    assert (json.loads(told + "}")["network"], found.strip()) == (False, "0")
    effective = site.attempt(promised).effective
    assert effective["host"]["NetworkMode"] == f"container:{effective['gate']['id']}"
    assert set(connect(place.engine).engine.facts) >= {"engine_id"}
    host = Engine.objects.get(pk=place.engine.pk).network_facts["host_addresses"]
    assert set(host) <= set(effective["gate"]["config"]["Cmd"][2].split(","))
    assert effective["gate"]["host"]["CapAdd"] == ["CAP_NET_ADMIN"]
    assert "gate" not in site.attempt(without).effective
    assert gate_of(site, place, promised) is None


def test_a_kill_at_every_step_of_a_gate_leads_to_one_end_and_leaves_nothing(site: FaultSite) -> None:
    assert kills(site, KILLED, flushed=False, enable_network=True) == []


def test_where_none_can_be_granted_the_job_waits_and_says_why_and_others_go_on(site: FaultSite) -> None:
    """The resolver named is closed to every job, so that the trial fails."""
    place = site.place(enable_network=True)
    job = site.shell(place, INTERFACES)
    assert "was not tried for a network yet" in site.detail(job)["pending_reason"]
    worker = site.worker(place, NETWORK_RESOLVERS=["10.0.0.53"])
    eventually(lambda: Engine.objects.get(pk=place.engine.pk).network_tried_at)
    with edited(place.environment):
        type(place.environment).objects.filter(pk=place.environment.pk).update(enable_network=False)
    other = site.shell(place, INTERFACES)
    site.wait_clean(other)  # it was not held up by the first one
    found = site.detail(job)
    assert (found["status"], found["attempts_made"], found["estimated_wait"]) == ("queued", 0, None)
    assert found["pending_reason"].startswith(f"engine {place.engine.name} grants no network; ")
    assert "a job cannot ask 10.0.0.53" in Engine.objects.get(pk=place.engine.pk).network_facts["note"]
    worker.kill()
    site.worker(place)
    site.wait_clean(job)
    assert site.log(job).content == b"1\n"


def test_a_dead_gate_leaves_its_job_without_a_network_and_is_told(site: FaultSite) -> None:
    place = site.place(enable_network=True)
    site.worker(place)
    job = site.shell(place, f"{INTERFACES}; sleep 2; {INTERFACES}")
    site.wait_status(job, "running")
    gate = gate_of(site, place, job)
    assert gate is not None
    assert list(disagreements()) == []
    assert place.client.signal(gate.id, "KILL")
    eventually(lambda: any("is running without its gate" in line for line in disagreements()))
    site.wait_clean(job)
    assert site.log(job).content == b"1\n0\n"
    assert site.detail(job)["end_reason"] == "succeeded"


def test_a_gate_that_goes_before_the_start_costs_an_attempt_and_opens_nothing(site: FaultSite) -> None:
    place = site.place(enable_network=True)
    first = site.worker(place, stop_at="created.after")
    job = site.shell(place, INTERFACES)
    first.wait_dead()
    gate = gate_of(site, place, job)
    assert gate is not None
    assert place.client.remove(gate.id)
    site.worker(place)
    with site.beat():
        site.wait_clean(job)
    found = site.detail(job)
    assert (found["end_reason"], found["attempts_made"]) == ("succeeded", 2)
    assert [row["end_reason"] for row in found["attempts"]] == ["cannot_start", "succeeded"]
    assert site.log(job).content == b"1\n"


def test_a_gate_that_cannot_stand_keeps_the_others_from_trying(site: FaultSite) -> None:
    place = site.place(enable_network=True)
    site.worker(place)
    eventually(lambda: Engine.objects.get(pk=place.engine.pk).network_granted)
    Engine.objects.filter(pk=place.engine.pk).update(network_facts={"host_addresses": ["nonsense"]})
    job = site.shell(place, INTERFACES)
    eventually(lambda: not Engine.objects.get(pk=place.engine.pk).network_granted)
    found = site.detail(site.wait_status(job, "queued"))
    assert [row["end_reason"] for row in found["attempts"]] == ["cannot_start"]
    note = Engine.objects.get(pk=place.engine.pk).network_facts["note"]
    assert "its gate is exited: launcher: nonsense: no address" in note
    assert granting.try_if_due(connect(place.engine))
    with site.beat():
        site.wait_clean(job)
    assert site.detail(job)["attempts_made"] == 2
    assert site.log(job).content == b"1\n"


def test_what_comes_late_is_swept(site: FaultSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate whose create was answered to nobody, and what a broken trial left."""
    place = site.place(enable_network=True)
    worker = site.worker(place)
    job = site.shell(place, "true")
    site.wait_clean(job)
    worker.kill()
    attempt, link = site.attempt(job), connect(place.engine)
    run = Run(attempt, job, attempt.token, link)
    spec = gate_spec(link, gate_labels(labels_of(run.identity)), (0,))
    late = stand(
        link.client, gate_name(attempt.container_name), body_of(spec, None), nonce=str(attempt.nonce)
    )
    began = int(time.time() - PROBE_LIFE - 5)
    trial = f"cs-{settings.SITE_ID}-probe-{began:08x}-00000000"
    labels = gate_labels(labels_of({"site": settings.SITE_ID, "nonce": "x"}))
    old = stand(link.client, gate_name(trial), body_of(gate_spec(link, labels, (0,)), None), nonce="x")
    young = stand(
        link.client,
        gate_name(f"cs-{settings.SITE_ID}-probe-{int(time.time()):08x}-00000001"),
        body_of(gate_spec(link, labels, (0,)), None),
        nonce="x",
    )
    link.workspace(trial).prepare(uid=attempt.uid, disk_mib=16, inputs={}, job_json=b"{}")
    assert any("although its attempt was cleaned" in line for line in disagreements())
    assert sorted(sweep.sweep(place.engine)) == sorted([f"container {trial}-gate", f"workspace {trial}"])
    monkeypatch.setattr(sweep, "GRACE", timedelta(0))
    assert sweep.sweep(place.engine) == [f"container {attempt.container_name}-gate"]
    assert [link.client.inspect(one) for one in (late, old)] == [None, None]
    assert link.client.inspect(young) is not None
    assert link.client.remove(young)


def test_it_is_tried_again_when_it_is_wanted_later(site: FaultSite) -> None:
    """A worker that started before anybody wanted a network finds out at its next sweep."""
    place = site.place()
    link = connect(place.engine)
    granting.try_at_start(link)
    assert Engine.objects.get(pk=place.engine.pk).network_tried_at is None
    assert not granting.try_if_due(link)
    with edited(place.environment):
        type(place.environment).objects.filter(pk=place.environment.pk).update(enable_network=True)
    assert granting.try_if_due(link)
    tried = Engine.objects.get(pk=place.engine.pk)
    assert tried.network_granted
    assert not granting.try_if_due(link)  # it stands
    assert Engine.objects.get(pk=place.engine.pk).network_tried_at == tried.network_tried_at
    granting.refuse(place.engine, "as if")
    assert granting.try_if_due(link)
    old = Engine.objects.get(pk=place.engine.pk).network_tried_at
    assert old is not None
    Engine.objects.filter(pk=place.engine.pk).update(network_tried_at=old - granting.ANEW)
    assert not granting.try_if_due(link)  # granted before and after: nobody has to be told
    again = Engine.objects.get(pk=place.engine.pk).network_tried_at
    assert again is not None
    assert again > old


def test_an_engine_whose_files_go_through_its_api_grants_none(site: FaultSite) -> None:
    place = site.place(enable_network=True)
    Engine.objects.filter(pk=place.engine.pk).update(workspace_mode="archive")
    place.engine.refresh_from_db()
    assert not granting.try_now(connect(place.engine))
    found = Engine.objects.get(pk=place.engine.pk)
    assert (found.network_granted, found.network_facts) == (False, {"note": granting.NEEDS_SHARED})
    Engine.objects.filter(pk=place.engine.pk).update(workspace_mode="shared")
    assert not Attempt.objects.filter(engine=place.engine).exists()
