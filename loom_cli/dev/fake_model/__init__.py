"""A scripted model behind the real OpenAI wire protocol, for demos, tests and benchmarks.

In a test, in the same process::

    async with running(script) as url:  # http://127.0.0.1:PORT/v1
        ...

From a shell: ``python -m loom_cli.dev.fake_model --script FILE --port 0``. The script's form is in
`loom_dsl.simulation.script`.
"""

from loom_cli.dev.fake_model.app import FakeModel, RecordedRequest
from loom_cli.dev.fake_model.server import load_script, running, serve

__all__ = ["FakeModel", "RecordedRequest", "load_script", "running", "serve"]
