"""Each measurement in its shortest form: that it runs, and what it reports. How fast is for `./run bench` to say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.figures import percentile, spread, tree_cpu_ms
from bench.place import NEEDED
from compute_site.embedded.paths import REPOSITORY

needs_all = pytest.mark.skipif(
    not all(os.environ.get(name) for name in NEEDED) and not os.environ.get("CI"),
    reason=f"{', '.join(NEEDED)} ARE NOT ALL SET: THE MEASUREMENTS ARE NOT TRIED (./run test sets them)",
)


def measure(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run one as a person would, on a database of its own; returns its figures."""
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", *arguments, "--output", str(output)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "aim" in done.stdout
    return json.loads(output.read_text())


def databases_of_measurements() -> int:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM pg_database WHERE datname LIKE 'bench\\_%'").fetchone()
    assert row is not None
    return row[0]


@pytest.mark.engine
@needs_all
def test_throughput_of_two_jobs(tmp_path):
    figures = measure(tmp_path, "throughput", "--jobs", "2", "--rounds", "1", "--parallel", "1")
    assert figures["latency"]["post_to_finished"]["n"] == 2
    one = figures["parallel"]["1"]
    assert one["slots"] == 1
    assert one["site"]["per_second"] > 0
    assert one["loop"]["per_second"] > 0
    assert one["cpu_outside_docker"] > 0
    assert databases_of_measurements() == 0


@needs_all
def test_reservation_by_two_processes(tmp_path):
    figures = measure(tmp_path, "reservation", "--contenders", "2", "--each", "8", "--old", "500")
    for name in ("new", "old", "environments", "live"):
        assert figures[name]["acquire"]["n"] == 16
        assert figures[name]["release"]["n"] == 32
        assert figures[name]["cycles_per_second"] > 0
    assert set(figures["growth"]) == {"old", "environments", "live"}
    assert figures["deadlocks"] == 0
    assert databases_of_measurements() == 0


def test_percentiles_name_values_that_were_measured():
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert spread([3.0])["p99"] == 3.0


def test_a_meter_counts_what_ended_children_used():
    code = "import time\nwhile time.process_time() < 0.3: pass"
    before = tree_cpu_ms(os.getpid())
    subprocess.run([sys.executable, "-c", code], check=True)
    assert tree_cpu_ms(os.getpid()) - before >= 290
