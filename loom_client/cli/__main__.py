"""``python -m loom_client.cli`` is ``loom``."""

from loom_client.cli import main

main()
