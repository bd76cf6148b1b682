"""`python -m bench [throughput|reservation|all]`: measure, print a table, write the figures."""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import tables
from bench.place import Missing, own_site
from compute_site.embedded.progress import warn


def main() -> int:
    """Measure what was asked; 0 when the figures are there, 2 when something to measure with is missing."""
    options = _options()
    try:
        figures, lines = _measure(options)
    except Missing as problem:
        warn(str(problem))
        return 2
    print("\n".join(lines), flush=True)
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def _measure(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    with own_site() as folder:
        # Only now: it imports models, and those want Django's settings, which want the database's name.
        measure = import_module(f"bench.{options.what}").measure
        if options.what == "throughput":
            figures = measure(
                folder=folder, jobs=options.jobs, rounds=options.rounds, parallel=options.parallel
            )
            return figures, tables.throughput(figures)
        figures = measure(contenders=options.contenders, each=options.each, old=options.old)
        return figures, tables.reservation(figures)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("what", choices=("throughput", "reservation"), nargs="?", default="throughput")
    parser.add_argument("--jobs", type=int, default=30, help="throughput: runs in one round (default 30)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="throughput: rounds, in turns with the loop (default 3)"
    )
    parser.add_argument(
        "--parallel", type=int, nargs="+", default=[1, 2, 4], help="throughput: how many at a time"
    )
    parser.add_argument("--contenders", type=int, default=8, help="reservation: processes (default 8)")
    parser.add_argument(
        "--each", type=int, default=200, help="reservation: times that each reserves (default 200)"
    )
    parser.add_argument("--old", type=int, default=100_000, help="reservation: old jobs (default 100,000)")
    parser.add_argument("--output", type=Path, help="write the figures (JSON) here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
