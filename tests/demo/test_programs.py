"""The demo's programs do real work on real data, outside a sandbox too."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "compute_site/embedded/demo_jobs"
SPECIES = ["setosa", "versicolor", "virginica"]


def run(name: str, outputs: Path) -> subprocess.CompletedProcess[str]:
    folders = {"JOB_INPUTS": str(PROGRAMS), "JOB_OUTPUTS": str(outputs)}
    program = [sys.executable, "-I", str(PROGRAMS / name)]
    return subprocess.run(program, env=folders, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    outputs = tmp_path_factory.mktemp("outputs")
    done = run("classify_iris.py", outputs)
    assert done.returncode == 0, done.stderr
    return done.stdout, outputs


def flowers() -> list[dict[str, str]]:
    with (PROGRAMS / "iris.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_data_are_fishers():
    rows = flowers()
    assert [sum(row["species"] == name for row in rows) for name in SPECIES] == [50, 50, 50]
    # Column sums of the paper's table, and the two rows in which the copy at UCI differs.
    sums = [round(sum(float(row[name]) for row in rows), 1) for name in list(rows[0])[:4]]
    assert sums == [876.5, 458.6, 563.7, 179.9]
    assert list(rows[34].values())[:4] == ["4.9", "3.1", "1.5", "0.2"]
    assert list(rows[37].values())[:4] == ["4.9", "3.6", "1.4", "0.1"]


def test_the_classifier_learns(iris):
    result = json.loads((iris[1] / "result.json").read_text())
    assert result["status"] == "ok"
    found = result["result"]
    assert (found["samples"], found["train"], found["test"]) == (150, 120, 30)
    assert found["accuracy"] >= 0.9
    assert found["cross_validation"] >= 0.93
    assert [sum(row) for row in found["confusion"]] == [10, 10, 10]
    right = sum(found["confusion"][kind][kind] for kind in range(3))
    assert found["accuracy"] == round(right / 30, 4)


def test_the_model_file_predicts_without_the_program(iris):
    model = json.loads((iris[1] / "model.json").read_text())
    right = 0
    for row in flowers():
        values = [float(row[name]) for name in model["measurements"]]
        scaled = [(x - m) / s for x, m, s in zip(values, model["mean"], model["spread"], strict=True)] + [1.0]
        scores = [sum(w * x for w, x in zip(weights, scaled, strict=True)) for weights in model["weights"]]
        right += model["species"][scores.index(max(scores))] == row["species"]
    assert right >= 140


def test_the_same_seed_gives_the_same_files(iris, tmp_path):
    assert run("classify_iris.py", tmp_path).returncode == 0
    for name in ("result.json", "model.json", "report.md"):
        assert (tmp_path / name).read_bytes() == (iris[1] / name).read_bytes()


def test_it_shows_progress_and_a_readable_report(iris):
    output, outputs = iris
    assert output.count("cross validation, strength") == 3
    assert output.splitlines()[0] == "read 150 flowers of 3 species, 4 measurements each"
    assert "| versicolor |" in (outputs / "report.md").read_text()


def test_network_program_tells_what_it_reached(tmp_path):
    done = run("try_network.py", tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())["result"]
    assert done.returncode == (1 if result["reached"] else 0)
    assert len(result["tried"]) == 4
