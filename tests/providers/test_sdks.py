"""The providers' own clients against our imitations: what we imitate is theirs, not our imagination."""

import asyncio

import pytest
from lium.sdk import Config, Lium
from targon.client.client import Client
from targon.client.serverless import ContainerConfig, CreateServerlessResourceRequest

from providers.lium import build_template
from providers.targon import Targon
from tests.providers.test_guardrails import KEY, SPEC


@pytest.fixture
def official(lium, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    return Lium(Config(api_key=lium.key, base_url=lium.url))


def test_lium_lists_rents_looks_and_ends(lium, official):
    offers = official.ls()
    assert {(one.gpu_type, one.gpu_count, one.price_per_gpu, one.whole_host_only) for one in offers} == {
        ("H200", 8, 2.5, False),
        ("RTX4090", 1, 0.35, False),
        ("RTX4090", 2, 0.3, False),
        ("H200", 8, 2.0, True),
    }
    machine = next(one for one in offers if one.price_per_gpu == 2.5)
    quote = official.quote(machine.id, hours=2, gpu_count=2)
    assert (quote.price_per_hour, quote.total_usd) == (5.0, 10.0)
    template = official.create_template(
        "cs-test", SPEC.image, docker_image_digest=SPEC.digest, docker_image_tag="1", ports=[22]
    )
    assert official.wait_template_ready(template.id, timeout=1).id == template.id
    pod = official.up(
        executor_id=machine.id, name="a", template_id=template.id, ssh_keys=[KEY], gpu_count=2,
        termination_hours=2, wait=True, timeout=30,
    )  # fmt: skip
    assert (pod.status, pod.gpu_count, pod.executor.price_per_hour) == ("RUNNING", 2, 5.0)
    assert pod.removal_scheduled_at
    official.schedule_termination(pod, termination_time="2026-03-14T14:00:00Z")
    assert [one.removal_scheduled_at for one in official.ps()] == ["2026-03-14T14:00:00Z"]
    assert list(official.logs(pod.id)) == [b"pulling image", b"ready"]
    assert official.list_ssh_keys()[0].public_key == KEY
    assert official.balance() == 100.0
    official.down(pod)
    assert official.ps() == []


def test_lium_sends_the_fields_that_we_send(lium, official):
    official.create_template("x", SPEC.image, docker_image_digest=SPEC.digest)
    sent = lium.seen("POST", "/templates")[0].body
    ours = build_template(SPEC)
    assert set(ours) <= set(sent)
    assert {key: type(sent[key]) for key in ours} == {key: type(value) for key, value in ours.items()}


def test_targon_lists_rents_looks_and_ends(targon, monkeypatch):
    async def story():
        address = targon.url.removesuffix("/tha/v2")
        async with Client(targon.key) as client:
            client.config.base_url = address
            work, inventory, logs = client.async_serverless, client.async_inventory, client.async_logs
            work.base_url = logs.base_url = inventory.base_url = address
            shapes = await inventory.capacity(inventory_type="rental", gpu=True)
            assert next((one.name, one.cost_per_hour, one.spec.gpu_count) for one in shapes) == (
                "h200-large",
                17.6,
                8,
            )
            request = CreateServerlessResourceRequest(
                name="a", resource_name="h200-small", container=ContainerConfig(image=SPEC.image)
            )
            made = await work.deploy_container(request)
            assert made.status == "provisioning"
            states = [(await work.get_state(made.uid)).status for _ in range(3)]
            assert states[-1] == "running"
            assert [one.cost for one in await work.list_container()] == [2.4]
            assert (await work.get_events(made.uid)).items[0].workload_uid == made.uid
            assert [line async for line in logs.stream_logs(made.uid, follow=False)] == [
                "pulling image",
                "ready",
            ]
            await work.delete_container(made.uid)
            assert await work.list_container() == []

    asyncio.run(story())


def test_targon_ours_goes_the_same_two_steps(targon):
    Targon(targon.key, targon.url).provision(SPEC, "key-1")
    posts = [one.path for one in targon.requests if one.method == "POST"]
    assert posts[0] == "/workloads"
    assert posts[1].endswith("/deploy")
