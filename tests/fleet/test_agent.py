"""The agent: it waits out silence, keeps what it has finished, and hears what a refusal means."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from environments.described_nvml import DescribedNVML
from workers.fleet.agent.config import BadConfig, Config, read_config
from workers.fleet.agent.health import Health
from workers.fleet.agent.loops import Agent
from workers.fleet.agent.running import Finished, NotWanted
from workers.fleet.client import SignedClient
from workers.fleet.manifest import build

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "agent.yaml"
SHA = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
FOO = Finished(files=[("foo", 3, SHA)], contents={SHA: "Zm9v"}, run_seconds=1.0)


class Site:
    """A site of answers by address; `None` is silence. Remembers what it was sent."""

    def __init__(self, **answers):
        self.answers = {name: list(found) for name, found in answers.items()}
        self.sent: list[tuple[str, dict]] = []

    def __call__(self, method, url, headers, body):
        name = url.rsplit("/", 1)[1]
        self.sent.append((name, json.loads(body)))
        found = self.answers.get(name, [(200, {})])
        answer = found.pop(0) if len(found) > 1 else found[0]
        if answer is None:
            raise OSError("no answer")
        return answer[0], json.dumps(answer[1]).encode()

    def count(self, name):
        return sum(one == name for one, _ in self.sent)


class Runs:
    """What stands for the sandbox: it ends at once, in this way."""

    def __init__(self, result=FOO):
        self.result = result
        self.ran = 0

    def run(self, assignment, slot, progress):
        self.ran += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


WORK = {"id": "a1", "token": "t", "unit": "u", "lease": 60, "work": {}}
WELCOME = (200, {"id": "w", "ttl": 120})


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "binding.json").write_text("{}")

    def make(site, runs=None, **changes):
        config = Config(
            **{"site_url": "http://site", "site_id": "s", "key_file": tmp_path / "key", "poll": 0.0,
               "binding_file": tmp_path / "binding.json", "state_dir": tmp_path} | changes
        )  # fmt: skip
        client = SignedClient("http://site", "s", Ed25519PrivateKey.generate(), site)
        agent = Agent(config, client, runs or Runs())
        real = agent.stopping.wait
        monkeypatch.setattr(agent.stopping, "wait", lambda seconds: real(0.001))
        return agent

    return make


def test_the_example_is_a_configuration(tmp_path):
    config = read_config(EXAMPLE, {})
    assert (config.slots, config.cores, config.alter_outputs) == (1, (0, 1), False)
    assert read_config(EXAMPLE, {"AGENT_SLOTS": "2", "AGENT_CORES": "[3]"}).cores == (3,)
    for changes in ({"slots": "two"}, {"cores": ["a"]}, {"unknown": 1}, {"site_url": None}):
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text(yaml.safe_dump(yaml.safe_load(EXAMPLE.read_text()) | changes))
        with pytest.raises(BadConfig):
            read_config(wrong, {})


def test_a_key_that_others_may_read_is_refused(made, tmp_path):
    (tmp_path / "key").write_text("")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600"):
        made(Site()).config.key()


def test_a_lost_answer_never_runs_a_unit_again(made, tmp_path):
    site = Site(
        register=[WELCOME],
        pull=[(200, [WORK]), (200, [])],
        result=[None, (503, {}), (429, {}), (200, {"status": "reported"})],
    )
    runs = Runs()
    agent = made(site, runs)
    agent.register()
    agent.pass_once()
    agent._threads[0].join()
    assert (runs.ran, site.count("result")) == (1, 4)
    assert list(agent.spool.waiting()) == []
    body = site.sent[-1][1]
    assert body["manifest"] == build(0, [("foo", 3, SHA)])[0]
    assert body["contents"] == {SHA: "Zm9v"}


def test_a_kept_result_is_sent_by_the_next_process(made):
    agent = made(Site())
    agent.spool.put(WORK, FOO.as_json())
    site = Site(register=[WELCOME], pull=[(200, [])], result=[(200, {"status": "reported"})])
    runs = Runs()
    later = made(site, runs)
    later.register()
    later.pass_once()
    assert (runs.ran, site.count("result")) == (0, 1)
    assert list(later.spool.waiting()) == []


@pytest.mark.parametrize(
    ("status", "code", "kept", "stops"),
    [
        (400, "invalid", 0, False),
        (403, "proof_invalid", 0, False),
        (404, "not_found", 0, False),
        (409, "stale_token", 0, False),
        (413, "too_large", 0, False),
        (401, "skew", 1, True),
        (403, "binding_ended", 1, True),
        (403, "retired", 1, True),
    ],
)
def test_a_result_is_dropped_only_when_the_site_will_never_take_it(made, status, code, kept, stops):
    site = Site(register=[WELCOME], pull=[(200, [WORK]), (200, [])], result=[(status, {"code": code})])
    agent = made(site)
    agent.register()
    agent.pass_once()
    agent._threads[0].join()
    assert len(list(agent.spool.waiting())) == kept
    assert agent.stopping.is_set() == stops
    if stops and code != "retired":
        assert (agent.code, code in agent.why) == (1, True)


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (None, True),
        ((401, {"code": "skew"}), True),
        ((409, {"code": "stale_token"}), False),
        ((404, {}), False),
        ((403, {"code": "retired"}), False),
    ],
)
def test_a_run_is_ended_only_when_it_is_not_ours_any_more(made, answer, goes_on):
    assert made(Site(progress=[answer]))._progress(WORK, "tail") == goes_on


def test_a_fault_of_the_agent_is_reported_and_survived(made):
    site = Site(register=[WELCOME], pull=[(200, [WORK]), (200, [])], result=[(200, {"status": "failed"})])
    agent = made(site, Runs(RuntimeError("broken")))
    agent.register()
    agent.pass_once()
    agent._threads[0].join()
    assert site.sent[-1][1]["reason"] == "internal_error"
    assert not agent.stopping.is_set()
    agent.pass_once()


def test_what_nobody_wants_is_not_reported(made):
    site = Site(register=[WELCOME], pull=[(200, [WORK]), (200, [])])
    agent = made(site, Runs(NotWanted()))
    agent.register()
    agent.pass_once()
    agent._threads[0].join()
    assert site.count("result") == 0
    assert agent._slots == {0}


def test_a_retired_agent_ends_well_and_a_refused_one_does_not(made):
    retired = made(Site(register=[WELCOME], pull=[(403, {"code": "retired"})]))
    assert (retired.work(), retired.why) == (0, "the site has retired this worker")
    refused = made(Site(register=[(403, {"code": "unknown_owner", "detail": "No owner"})]))
    assert refused.work() == 1
    assert "unknown_owner" in refused.why


def test_unknown_registers_again_and_silence_is_waited_out(made):
    gone = (403, {"code": "retired"})
    site = Site(register=[None, WELCOME], pull=[(404, {}), (403, {"code": "not_active"}), gone])
    assert made(site).work() == 0
    assert site.count("register") == 3  # the lost one, the first, the one after 404
    assert site.count("heartbeat") >= 3


def test_heartbeats_tell_of_devices_and_of_one_that_vanished(made):
    cards = [{"uuid": f"GPU-{name}", "name": "NVIDIA H200", "memory_mib": 143_771} for name in "ab"]
    description = {"driver": "570.1", "devices": list(cards)}
    site = Site(register=[WELCOME])
    agent = made(site)
    agent.health = Health(DescribedNVML(description))
    agent.register()
    first = site.sent[-1][1]
    assert (first["version"], first["health"]) == ("1", {})
    assert first["devices"][0] == {
        "uuid": "GPU-a", "model": "NVIDIA H200", "memory_mib": 143_771, "driver_version": "570.1"
    }  # fmt: skip
    description["devices"] = [{"error": "GPU is lost"}, cards[1]]
    agent.beat()
    then = site.sent[-1][1]
    assert [device["uuid"] for device in then["devices"]] == ["GPU-b"]
    assert then["health"] == {"GPU-a": "NVIDIA H200 has vanished"}
    description["devices"] = list(cards)
    agent.beat()
    assert site.sent[-1][1]["health"] == {}


def test_no_device_is_an_empty_list_and_no_answer_is_said():
    assert Health(DescribedNVML({"driver": "1", "devices": []})).told() == {"devices": [], "health": {}}
    broken = Health(DescribedNVML({"driver": "1", "devices": [], "error": "Driver Not Loaded"})).told()
    assert broken["devices"] == []
    assert "Driver Not Loaded" in broken["health"]["nvml"]
    worse = Health(object()).told()  # nothing that NVML's functions are in
    assert worse["devices"] == []
    assert worse["health"]["nvml"].startswith("AttributeError")


def test_the_agent_needs_no_rows():
    """It runs on machines without the site's settings."""
    code = "import sys, workers.fleet.agent.__main__; print('django.db' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=EXAMPLE.parents[2], env={})  # fmt: skip
    assert done.stdout == "False\n"


def test_the_liar_changes_its_first_output_and_signs_it(made):
    agent = made(Site(), alter_outputs=True)
    body = agent._body(WORK, FOO.as_json())
    assert body["manifest"]["files"][0]["size"] == 4
    assert body["proof"]["signature"]
