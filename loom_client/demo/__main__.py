"""``python -m loom_client.demo``, which ``make demo`` runs."""

import asyncio

from loom_client.cli import end_process
from loom_client.cli.failures import DONE, FAILED, outcome
from loom_client.render import paper_for


def main() -> int:
    """Show the demo: 0 when its job was completed, 1 when not, 2 when something is missing, 130 when interrupted."""
    from loom_client.demo.play import play

    return outcome(lambda: DONE if asyncio.run(play(paper_for())) else FAILED)


if __name__ == "__main__":
    end_process(main())
