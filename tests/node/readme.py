"""The commands of the node's README, to be run as they are written."""

import re
from dataclasses import dataclass, field

from compute_site.embedded.paths import REPOSITORY

README = REPOSITORY / "docker/node/README.md"
# What no test runs, and why not.
NOT_HERE = {
    "docker-compose -f docker/compose.yml logs -f worker": "it follows until Ctrl-C",
}


@dataclass
class Readme:
    """The blocks below each heading, and which lines were run."""

    blocks: dict[str, list[list[str]]] = field(default_factory=dict)
    run: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for heading, text in re.findall(r"^##+ ([^\n]*)\n(.*?)(?=^##+ |\Z)", README.read_text(), re.M | re.S):
            found = re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
            self.blocks[heading] = [[_bare(line) for line in block.splitlines()] for block in found]

    def block(self, heading: str, number: int = 0) -> str:
        """A block without the lines that no test runs; it counts as run."""
        lines = [line for line in self.blocks[heading][number] if line not in NOT_HERE]
        self.run += lines
        return "\n".join(lines)

    def left_out(self) -> list[str]:
        """Lines that were neither run nor named above."""
        every = [line for blocks in self.blocks.values() for block in blocks for line in block]
        return [line for line in every if line not in self.run and line not in NOT_HERE]


def _bare(line: str) -> str:
    """Without the remark at its end."""
    return re.sub(r" +# .*", "", line)
