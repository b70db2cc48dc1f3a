"""The command ``loom``.

The commands, what they print, the doctor, and what development needs on one machine. It may import every other package
and `worker.py`, which it starts; no package imports it.

Nothing is imported here but the standard library, and in the modules of the commands nothing but typer: what a command
needs is imported when it runs, so that ``loom --help`` answers at once.
"""

import sys

from loom_tools.exit import end_process


def main(argv: list[str] | None = None) -> None:
    """Run one command.

    Args:
        argv: The arguments after the program's name; the process's own by default, and then the process ends here.

    Raises:
        SystemExit: 0 done, 1 the job failed, 2 a user's mistake, 130 interrupted.
    """
    try:
        from loom_cli.app import run

        code = run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        code = 130
    if argv is None:
        end_process(code)
    raise SystemExit(code)
