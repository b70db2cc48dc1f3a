"""What a worker writes to its log: a line for each record, with the traceback only where it is asked for."""

import logging
import os
import traceback

MOST_CHARACTERS = 2_000


class OneLine(logging.Formatter):
    """Puts the error behind the message, on the same line."""

    def formatException(self, info: object) -> str:
        """Say of an exception only what it is."""
        assert isinstance(info, tuple)
        return " ".join("".join(traceback.format_exception_only(info[1])).split())

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line."""
        # The text of an exception may come from a model or a tool, and a log is read at a terminal.
        from loom_client.render.text import one_line

        return one_line(super().format(record), MOST_CHARACTERS)


def configure_log() -> None:
    """Log to standard error; LOOM_LOG=info says more than warnings, LOOM_DEBUG=1 shows tracebacks."""
    debug = os.environ.get("LOOM_DEBUG", "") not in ("", "0")
    pattern = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(pattern) if debug else OneLine(pattern))
    level = logging.getLevelNamesMapping().get(os.environ.get("LOOM_LOG", "warning").upper(), logging.WARNING)
    logging.basicConfig(level=level, handlers=[handler])
