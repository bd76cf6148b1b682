"""`python -m workers.fleet.agent --config FILE`: a remote worker, until it is stopped or retired."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from compute_site.core.errors import SiteError
from workers.fleet.agent.config import BadConfig, read_config
from workers.fleet.agent.loops import Agent
from workers.fleet.agent.running import Sandbox
from workers.fleet.client import SignedClient


def main(arguments: list[str]) -> int:
    """Run the agent; returns its exit status: 0 stopped or retired, 1 refused, 2 not startable."""
    parser = argparse.ArgumentParser(prog="agent", description="Run units of a site as a remote worker.")
    parser.add_argument("--config", type=Path, required=True, help="its settings (YAML)")
    logging.basicConfig(level=logging.INFO, format="%(levelname)-7s %(name)s: %(message)s")
    try:
        config = read_config(parser.parse_args(arguments).config)
        client = SignedClient(config.site_url, config.site_id, config.key())
        sandbox = Sandbox(config)
        sandbox.sweep()
    except (BadConfig, OSError, ValueError, SiteError) as error:
        logging.getLogger("agent").error("cannot start: %s", error)
        return 2
    agent = Agent(config, client, sandbox)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=agent.stop, daemon=True).start())
    return agent.work()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
