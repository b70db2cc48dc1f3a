"""``python -m loom_cli`` is ``loom``."""

from loom_cli import main

main()
