"""What of a job's outputs is stored and listed, read from a real folder."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobs.models import Attempt
from jobs.results import open_artifact
from tests.factories import submit, take
from workers.collection import collect_and_settle
from workers.sandbox.volume_shared import SharedWorkspace
from workers.steps import Run

MARKER = {
    **{"status": "exited", "code": 0, "signal": 0, "exec_errno": 0, "deadline": False, "termed": False},
    **{"boot_id_start": "", "boot_id_end": "", "started_ns": 0, "ended_ns": 1},
}
ENDED: dict[str, Any] = {
    **{"status": "exited", "exit_code": 0, "error": "", "oom_flag": False, "oom_event": False},
    **{"started_at": None, "finished_at": None, "boot_id": "", "connection_lost": False, "memory_limit": 1},
    **{"peak_bytes": None, "cpu_ns": None, "memory_kills": None, "marker": MARKER},
}


class Linked:
    """An engine that shares our file system."""

    def __init__(self, folder: Path) -> None:
        self._options: dict[str, Any] = {
            "site": "t",
            "state_dir": str(folder),
            "launcher": "",
            "disk": "watchdog",
        }

    def workspace(self, name: str, image_id: str = "") -> SharedWorkspace:
        return SharedWorkspace(name, **self._options)


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("declared", [None, ["a"], ["result.json"], ["z"]])
def test_one_content_under_many_names(site, user, account, own_storage, tmp_path, declared, link):
    """Whichever name is met first: every one that is declared can be had, and result.json is read."""
    fields = {} if declared is None else {"outputs": declared}
    attempt = take(submit(user, **fields), "created", "starting", "running", "collecting")
    Attempt.objects.filter(pk=attempt.pk).update(exit_facts=ENDED)
    attempt.refresh_from_db()
    run = Run(attempt, attempt.job, attempt.lease, Linked(tmp_path))  # type: ignore[arg-type]
    run.workspace.prepare(uid=os.getuid(), disk_mib=1, inputs={}, job_json=b"{}")
    outputs = tmp_path / "t" / attempt.container_name / "data" / "outputs"
    text = json.dumps({"score": str(tmp_path)})  # stored by no other test
    (outputs / "a").write_text(text)
    for name in ("result.json", "z"):
        os.link(outputs / "a", outputs / name) if link else (outputs / name).write_text(text)
    collect_and_settle(run)
    job = attempt.job
    job.refresh_from_db()
    assert (job.status, job.result, job.end_detail) == ("succeeded", json.loads(text), "")
    assert [artifact.path for artifact in job.artifacts.all()] == (declared or ["a", "result.json", "z"])
    for artifact in job.artifacts.all():
        with open_artifact(artifact) as content:
            assert content.read() == text.encode()
