"""Fit and evaluate a classifier of Iris flowers: softmax regression in plain Python.

Reads iris.csv from the inputs folder; writes result.json, model.json and report.md to the outputs folder. A fifth of
the flowers, drawn evenly from each species, is held out; on the others 5-fold cross validation picks the strength of
the regularisation; the model is then fitted to all of them and judged once on the held-out fifth.
"""

import csv
import json
import math
import os
import random
import time
from pathlib import Path

SEED = 1936
FOLDS = 5
STRENGTHS = (0.0003, 0.003, 0.03)
ROUNDS = 400
RATE = 0.5

Sample = tuple[list[float], int]


def read(path: Path) -> tuple[list[str], list[str], list[Sample]]:
    """Names of the measurements, names of the species, and the samples in the file's order."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    species = sorted({row[-1] for row in rows})
    return header[:-1], species, [([float(x) for x in row[:-1]], species.index(row[-1])) for row in rows]


def deal(samples: list[Sample], piles: int, shuffled: random.Random) -> list[list[Sample]]:
    """Split into piles of equal size with every species spread evenly over them."""
    result: list[list[Sample]] = [[] for _ in range(piles)]
    for kind in sorted({label for _, label in samples}):
        same = [sample for sample in samples if sample[1] == kind]
        shuffled.shuffle(same)
        for position, sample in enumerate(same):
            result[position % piles].append(sample)
    return result


class Model:
    """Softmax regression on standardised measurements, fitted by gradient descent."""

    def __init__(self, samples: list[Sample], kinds: int, strength: float) -> None:
        columns = list(zip(*(values for values, _ in samples), strict=True))
        self.mean = [sum(column) / len(column) for column in columns]
        self.spread = [
            math.sqrt(sum((x - mean) ** 2 for x in column) / len(column)) or 1.0
            for column, mean in zip(columns, self.mean, strict=True)
        ]
        self.weights = [[0.0] * (len(columns) + 1) for _ in range(kinds)]
        rows = [(self.scaled(values), label) for values, label in samples]
        for _ in range(ROUNDS):
            self._descend(rows, strength)
        self.loss = -sum(math.log(self._shares(row)[label]) for row, label in rows) / len(rows)

    def scaled(self, values: list[float]) -> list[float]:
        """Measurements with mean 0 and spread 1 over the fitted samples, and a 1 for the intercept."""
        return [(x - m) / s for x, m, s in zip(values, self.mean, self.spread, strict=True)] + [1.0]

    def _shares(self, row: list[float]) -> list[float]:
        scores = [sum(w * x for w, x in zip(weights, row, strict=True)) for weights in self.weights]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        return [power / total for power in powers]

    def _descend(self, rows: list[Sample], strength: float) -> None:
        slopes = [[0.0] * len(weights) for weights in self.weights]
        for row, label in rows:
            for kind, share in enumerate(self._shares(row)):
                wrong = share - (kind == label)
                slope = slopes[kind]
                for position, x in enumerate(row):
                    slope[position] += wrong * x
        for weights, slope in zip(self.weights, slopes, strict=True):
            for position in range(len(weights)):
                kept = strength * weights[position] if position < len(weights) - 1 else 0.0
                weights[position] -= RATE * (slope[position] / len(rows) + kept)

    def predict(self, values: list[float]) -> int:
        """The most likely species, as its number."""
        shares = self._shares(self.scaled(values))
        return shares.index(max(shares))

    def accuracy(self, samples: list[Sample]) -> float:
        """The share of samples that are told right, 0 to 1."""
        return sum(self.predict(values) == label for values, label in samples) / len(samples)


def cross_validate(piles: list[list[Sample]], kinds: int, strength: float) -> float:
    """Mean accuracy over the folds, each judged by a model that has not seen it."""
    scores = []
    for position, fold in enumerate(piles):
        rest = [sample for other, pile in enumerate(piles) if other != position for sample in pile]
        scores.append(Model(rest, kinds, strength).accuracy(fold))
    mean = sum(scores) / len(scores)
    folds = " ".join(f"{score:.3f}" for score in scores)
    print(f"cross validation, strength {strength:<7g} folds {folds}  mean {mean:.4f}", flush=True)
    return mean


def confusion(model: Model, samples: list[Sample], kinds: int) -> list[list[int]]:
    """Rows: the true species; columns: what the model said."""
    table = [[0] * kinds for _ in range(kinds)]
    for values, label in samples:
        table[label][model.predict(values)] += 1
    return table


def report(result: dict, species: list[str]) -> str:
    """The findings as Markdown."""
    lines = [
        "# Iris: softmax regression in plain Python",
        "",
        f"- flowers: {result['samples']} ({result['train']} to fit, {result['test']} held out)",
        f"- accuracy on the held-out flowers: {result['accuracy']:.4f}",
        f"- mean accuracy in {FOLDS}-fold cross validation: {result['cross_validation']:.4f}",
        f"- regularisation strength chosen: {result['strength']:g}",
        "",
        "| true \\ said | " + " | ".join(species) + " |",
        "|---|" + "---:|" * len(species),
    ]
    for name, row in zip(species, result["confusion"], strict=True):
        lines.append(f"| {name} | " + " | ".join(str(count) for count in row) + " |")
    return "\n".join(lines) + "\n"


def main(inputs: Path, outputs: Path) -> None:
    """Read, split, choose, fit, judge, write."""
    begun = time.perf_counter()
    measurements, species, samples = read(inputs / "iris.csv")
    print(
        f"read {len(samples)} flowers of {len(species)} species, {len(measurements)} measurements each",
        flush=True,
    )
    test, *piles = deal(samples, FOLDS, random.Random(SEED))
    train = [sample for pile in piles for sample in pile]
    print(f"held out {len(test)} flowers for the end, {len(train)} to fit", flush=True)

    kinds = len(species)
    folds = deal(train, FOLDS, random.Random(SEED))
    scores = {strength: cross_validate(folds, kinds, strength) for strength in STRENGTHS}
    strength = max(STRENGTHS, key=lambda one: scores[one])
    model = Model(train, kinds, strength)
    print(f"fitted with strength {strength:g}: loss {model.loss:.4f} on {len(train)} flowers", flush=True)

    result = {
        "samples": len(samples), "train": len(train), "test": len(test), "species": species,
        "accuracy": round(model.accuracy(test), 4), "cross_validation": round(scores[strength], 4),
        "strength": strength, "loss": round(model.loss, 4), "confusion": confusion(model, test, kinds), "seed": SEED,
    }  # fmt: skip
    print(f"accuracy on the held-out flowers: {result['accuracy']:.4f}", flush=True)

    model_file = {
        "kind": "softmax regression", "measurements": measurements, "species": species,
        "mean": model.mean, "spread": model.spread, "weights": model.weights,
    }  # fmt: skip
    (outputs / "model.json").write_text(json.dumps(model_file, indent=1) + "\n")
    (outputs / "report.md").write_text(report(result, species))
    (outputs / "result.json").write_text(json.dumps({"status": "ok", "result": result}) + "\n")
    print(
        f"wrote result.json, model.json and report.md after {time.perf_counter() - begun:.1f} s", flush=True
    )


if __name__ == "__main__":
    main(Path(os.environ["JOB_INPUTS"]), Path(os.environ["JOB_OUTPUTS"]))
