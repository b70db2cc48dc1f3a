"""``python -m loom_cli.dev.fake_model --script FILE [--host HOST] [--port PORT] [--api-key KEY]``."""

import argparse
import sys
from pathlib import Path

from loom_cli.dev.fake_model.server import serve
from loom_dsl.errors import LoomError


def main() -> int:
    """Serve a script, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m loom_cli.dev.fake_model", description="Serve a scripted model.")
    parser.add_argument("--script", type=Path, required=True, help="a `kind: fake-model` file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port (default)")
    parser.add_argument("--api-key", help="accept only this key")
    options = parser.parse_args()
    try:
        serve(options.script, options.host, options.port, api_key=options.api_key)
    except LoomError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
