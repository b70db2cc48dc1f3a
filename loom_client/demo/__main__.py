"""``python -m loom_client.demo``, which ``make demo`` runs."""

import asyncio

from loom_client.cli import end_process
from loom_client.cli.failures import DONE, FAILED, outcome
from loom_client.render import paper_for


def main() -> int:
    """Show the demo: 0 when its job was completed, 1 when not, 2 when something is missing, 130 when interrupted."""
    return outcome(_demo)


def _demo() -> int:
    from loom_client.demo.place import claimed
    from loom_client.demo.play import play
    from loom_client.temporal_binary import find_temporal

    with claimed() as place:
        # Outside the event loop, which would put Ctrl-C off until the CLI has been built.
        binary = find_temporal()
        return DONE if asyncio.run(play(paper_for(), place, binary)) else FAILED


if __name__ == "__main__":
    end_process(main())
