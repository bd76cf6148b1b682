"""What a job finds beside its inputs."""

import json

from jobs.spec import Spec
from tests.bundles import function, tar_gz
from tests.factories import submit
from workers import job_file

INPUTS = [{"name": "b", "text": "é"}, {"name": "a", "text": ""}]
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_function_job_is_described_without_its_bundle(site, user, account):
    asked = function("x = 1", "own:train", role="train", args={"n": 1})
    job = submit(user, command=[], function=asked, inputs=INPUTS)
    spec = Spec.from_json(job.spec)
    found = json.loads(job_file.document(job, 2, spec))
    assert found.pop("resources") == job.terms["resources"]
    assert found.pop("inputs") == [
        {"name": "a", "size": 0, "sha256": EMPTY},
        {
            "name": "b",
            "size": 2,
            "sha256": "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c",
        },
    ]
    limits = {"max_bytes": job.amounts["disk"] << 20, "max_files": 10_000}
    assert found == {
        **{"version": 1, "job": str(job.public_id), "attempt": 2, "max_duration": job.max_duration},
        "network": False,
        **{"role": "train", "function": "own:train", "args": {"n": 1}},
        "outputs": {"declared": ["model", "result.json"], **limits},
    }
    code = job_file.code(spec)
    assert code["bundle"] == tar_gz({"own.py": "x = 1"})
    assert code["runner.py"].startswith(b'"""Runs the function')


def test_a_container_job_has_no_code_and_no_function(site, user, account):
    job = submit(user)
    spec = Spec.from_json(job.spec)
    found = json.loads(job_file.document(job, 1, spec))
    assert [found[name] for name in ("role", "function", "args")] == [None, None, None]
    assert job_file.code(spec) == {}
