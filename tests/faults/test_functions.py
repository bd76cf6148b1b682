"""Function jobs on the real engine: what a function returns is told, what it forges or breaks is told as that."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from compute_site.embedded.ping import connection
from environments.models import Engine
from tests.bundles import function, tar_gz
from tests.faults.site import FaultSite

# The body of run(inputs, outputs, args); how the job ends, what the client reads as result or error.
FORGED = '{"status": "ok", "result": "forged"}'
BODIES: dict[str, tuple[str, str, Any]] = {
    "returns": ("print('hello'); return {'sum': sum(args['n']), 'in': inputs['a'].read_text()}", "succeeded", {"sum": 6, "in": "text"}),
    "raises": ("raise ValueError('too small: é')", "function_error", "ValueError: too small: é"),
    "os._exit(0)": ("import os; os._exit(0)", "function_error", "exit code 0, without returning"),
    "sys.exit()": ("import sys; sys.exit(0)", "function_error", "SystemExit: 0"),
    "recursion": ("return run(inputs, outputs, args)", "function_error", "RecursionError"),
    "no JSON": ("return {1, 2}", "function_error", "not JSON serializable"),
    "not a number": ("return float('nan')", "function_error", "not JSON compliant"),
    "too large": ("return 'x' * (1 << 20)", "function_error", "larger than 1048576 bytes"),
    "a result that cannot be kept": ("return 'a\\0b'", "no_result", "NUL"),
    "forges, then exits 0": (
        f"import os; (outputs / 'result.json').write_text('{FORGED}'); os._exit(0)",
        "function_error",
        "without returning",
    ),
    "a folder in the way": ("(outputs / 'result.json').mkdir(); return 1", "succeeded", 1),
    "forges from a process it leaves behind": (
        f"""import os, time
    if os.fork() == 0:
        os.setsid()
        while True:
            (outputs / 'result.json').write_text('{FORGED}')
    time.sleep(0.2)
    return 'real'""",
        "succeeded",
        "real",
    ),
    "forges and kills the runner": (
        f"import os, signal; (outputs / 'result.json').write_text('{FORGED}'); os.kill(os.getppid(), 9)",
        "killed",
        None,
    ),
    "looks into the runner's memory": (
        """import os
    try:
        open(f'/proc/{os.getppid()}/mem', 'r+b')
    except PermissionError:
        return 'refused'""",
        "succeeded",
        "refused",
    ),
    "lies on the runner's channel": (
        """import os, sys
    os.write(int(sys.argv[2]), b'{"status": "ok", "result": 1}\\n')
    return 2""",
        "function_error",
        "own form",
    ),
    "out of memory": ("x = bytearray(400 << 20); return len(x)", "out_of_memory", None),
    "for ever": (f"(outputs / 'result.json').write_text('{FORGED}')\n    while True: pass", "time_limit", None),
    "fills its disk": (
        """try:
        with open(outputs / 'big', 'wb') as file:
            while file.write(bytes(1 << 20)): pass
    except OSError as error:
        return error.errno""",
        "succeeded",
        28,
    ),
    "writes where it may not": (
        """refused = []
    for path in (inputs['a'], inputs['a'].with_name('new'), '/data/job.json', '/data/code/runner.py', '/data/code/x'):
        try:
            open(path, 'w')
        except PermissionError:
            refused.append(str(path))
    return len(refused)""",
        "succeeded",
        5,
    ),
}  # fmt: skip
# What is wrong with the bundle; part of what the client reads.
BUNDLES: dict[str, tuple[bytes | str, str, str]] = {
    "not what it says": (b"\x1f\x8bno gzip", "own:run", "cannot be unpacked"),
    "a way out": (tar_gz({"../own.py": "x = 1"}), "own:run", "no plain path"),
    "a link": (tar_gz({}, {"own.py": "/data/code/runner.py"}), "own:run", "no plain file"),
    "no such module": ("x = 1", "other:run", "No module named 'other'"),
    "no such function": ("x = 1", "own:run", "has no run"),
    "a module that ends the process": ("import os; os._exit(0)", "own:run", "without returning"),
}
IN = [{"name": "a", "text": "text"}]


def submit(site: FaultSite, place: Any, asked: dict[str, Any], **fields: Any) -> Any:
    resources = {"cpu": 1, "ram": 128, "disk": 32}
    more = {"image": None, "resources": resources, "function": asked, **fields}
    return site.submit(place, **more)


@pytest.fixture(scope="module")
def ended(fault_site: FaultSite) -> dict[str, dict[str, Any]]:
    """All these jobs, as the client reads them."""
    place = fault_site.place(cpu=2, ram=2048)
    worker = fault_site.worker(place)
    jobs = {}
    for name, (body, reason, _) in BODIES.items():
        asked = function(f"def run(inputs, outputs, args):\n    {body}\n", args={"n": [1, 2, 3]})
        duration = 2 if reason == "time_limit" else 60
        jobs[name] = submit(fault_site, place, asked, inputs=IN, max_duration=duration)
    for name, (code, entry, _) in BUNDLES.items():
        jobs[name] = submit(fault_site, place, function(code, entry))
    fault_site.wait_clean(*jobs.values(), seconds=150)
    found = {name: fault_site.detail(job) for name, job in jobs.items()}
    worker.kill()
    return found


@pytest.mark.parametrize("name", BODIES)
def test_each_function_ends_as_what_it_did(ended: dict[str, dict[str, Any]], name: str) -> None:
    found, (_, reason, told) = ended[name], BODIES[name]
    assert found["end_reason"] == reason, (found["end_detail"], found["result"])
    if reason == "succeeded":
        assert found["result"] == {"status": "ok", "result": told}
        return
    if reason == "function_error":
        assert told in found["end_detail"]
        assert found["result"]["error"].startswith(found["end_detail"])
        assert found["exit_code"] == 1
        return
    assert found["result"] is None
    assert (told or "") in found["end_detail"]


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_that_cannot_be_used_is_told(ended: dict[str, dict[str, Any]], name: str) -> None:
    found = ended[name]
    assert found["end_reason"] == "function_error"
    assert BUNDLES[name][2] in found["end_detail"]


def test_prints_are_the_log_and_the_traceback_has_no_frame_of_ours(
    site: FaultSite, ended: dict[str, dict[str, Any]]
) -> None:
    assert site.api.get(f"/api/v1/jobs/{ended['returns']['id']}/logs").content == b"hello\n"
    told = ended["raises"]["result"]["traceback"]
    assert "own.py" in told
    assert "runner.py" not in told
    assert set(ended["returns"]["spec"]["function"]["bundle"]) == {"size", "sha256"}


TRAINS = """
import json
def train(inputs, outputs, args):
    numbers = [float(line) for line in inputs["rows"].read_text().split()]
    (outputs / "model").write_text(json.dumps({"mean": sum(numbers) / len(numbers), "n": len(numbers)}))
    (outputs / "scratch").write_text("not declared")
    return {"n": len(numbers)}
def aggregate(inputs, outputs, args):
    models = [json.loads(path.read_text()) for path in inputs.values()]
    n = sum(model["n"] for model in models)
    mean = sum(model["mean"] * model["n"] for model in models) / n
    (outputs / "model").write_text(json.dumps({"mean": mean, "n": n}))
    return {"n": n}
def score(candidate, inputs, outputs, args):
    import os
    if candidate.name == "exits":
        os._exit(0)
    if candidate.name == "eats":
        bytearray(400 << 20)
    mean = json.loads(candidate.read_text())["mean"]
    return [-abs(mean - float(inputs["test"].read_text())), candidate.name != "late"]
"""


def model_of(site: FaultSite, job: Any) -> str:
    """The stored model of a job that succeeded with exactly the outputs of its role."""
    found = site.detail(job)
    assert found["end_reason"] == "succeeded", found["end_detail"]
    assert [file["path"] for file in found["manifest"]["files"]] == ["model", "result.json"]
    answer: Any = site.api.get(f"/api/v1/jobs/{job.public_id}/artifacts/model")
    return b"".join(answer.streaming_content).decode()


def test_training_two_tiers_of_aggregation_and_an_evaluation(site: FaultSite) -> None:
    """A small federation: each tier's model goes inline into the next; bad candidates spoil nothing."""
    place = site.place(cpu=2, ram=1024)
    site.worker(place)

    def wave(entry: str, role: str, batches: list[dict[str, str]]) -> list[str]:
        jobs = [
            submit(
                site,
                place,
                function(TRAINS, f"own:{entry}", role=role),
                inputs=[{"name": name, "text": text} for name, text in batch.items()],
            )
            for batch in batches
        ]
        site.wait_clean(*jobs)
        return [model_of(site, job) for job in jobs]

    models = wave("train", "train", [{"rows": "1 2 3"}, {"rows": "5"}, {"rows": "7 9"}])
    tier1 = wave("aggregate", "aggregate", [{"m0": models[0], "m1": models[1]}, {"m2": models[2]}])
    (tier2,) = wave("aggregate", "aggregate", [{"t0": tier1[0], "t1": tier1[1]}])
    assert json.loads(tier2) == {"mean": 4.5, "n": 6}

    candidates = {"good": tier2, "late": models[1], "broken": "no model", "exits": "{}", "eats": "{}"}
    inputs = [{"name": name, "text": text} for name, text in {**candidates, "test": "4"}.items()]
    asked = function(TRAINS, "own:score", role="evaluate", args={"candidates": list(candidates)})
    job = submit(site, place, asked, inputs=inputs)
    site.wait_clean(job)
    found = site.detail(job)
    assert found["end_reason"] == "succeeded", found["end_detail"]
    bad = [0, False]
    scores = {"good": [-0.5, True], "late": [-1.0, False], "broken": bad, "exits": bad, "eats": bad}
    assert found["result"] == {"status": "ok", "result": scores}
    assert [file["path"] for file in found["manifest"]["files"]] == ["result.json"]
    assert b"candidate broken: json.decoder.JSONDecodeError" in site.log(job, "stderr").content


def test_packages_come_from_an_image_that_the_dockerfile_makes(site: FaultSite) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        archive.add(Path(settings.BASE_DIR) / "docker/sandbox/Dockerfile", "Dockerfile")
        entry = tarfile.TarInfo("packages/ours/__init__.py")
        archive.addfile(entry)
    tag = "compute-site-test/sandbox:1"
    engine = connection(site.docker_host, 60)
    address = f"/build?t={tag}&buildargs=%7B%22BASE%22%3A%22{settings.SANDBOX_IMAGE}%22%7D"
    headers = {"Host": "docker", "Content-Type": "application/x-tar"}
    engine.request("POST", address, context.getvalue(), headers)
    assert b"Successfully tagged" in engine.getresponse().read()
    engine.close()
    place = site.place()
    site.worker(place, SANDBOX_IMAGE=tag)
    job = submit(site, place, function("import ours\ndef run(inputs, outputs, args): return ours.__name__"))
    site.wait_clean(job)
    assert site.detail(job)["result"] == {"status": "ok", "result": "ours"}


def test_through_the_engines_interface_it_is_the_same(site: FaultSite) -> None:
    """The other way of a workspace: bundle and runner come in an archive, and are as little the job's."""
    place = site.place()
    Engine.objects.filter(pk=place.engine.pk).update(workspace_mode="archive", disk_mode="watchdog")
    place.engine.refresh_from_db()
    site.worker(place)
    body = BODIES["writes where it may not"][0]
    job = submit(site, place, function(f"def run(inputs, outputs, args):\n    {body}\n"), inputs=IN)
    site.wait_clean(job)
    assert site.detail(job)["result"] == {"status": "ok", "result": 5}
