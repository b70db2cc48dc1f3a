"""``python -m demo``, which ``make demo`` runs."""

import asyncio

from loom_cli.errors import DONE, FAILED, outcome
from loom_cli.render.terminal import terminal_for
from loom_tools.exit import end_process


def main() -> int:
    """Show the demo: 0 when its job was completed, 1 when not, 2 when something is missing, 130 when interrupted."""
    return outcome(_demo)


def _demo() -> int:
    from demo.place import claimed
    from demo.play import play
    from loom_cli.dev.temporal_cli import find_temporal

    with claimed() as place:
        # Outside the event loop, which would put Ctrl-C off until the CLI has been built.
        binary = find_temporal()
        return DONE if asyncio.run(play(terminal_for(), place, binary)) else FAILED


if __name__ == "__main__":
    end_process(main())
