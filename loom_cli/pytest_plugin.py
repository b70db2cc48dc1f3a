"""The pytest fixture `simulate`: a graph played in memory against a scenario.

pytest loads this module wherever Loom is installed, so it imports nothing of Loom before a test asks for the fixture.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from loom_dsl.graph.graph import Graph
    from loom_dsl.graph.plan import Plan
    from loom_dsl.simulation.run import Rehearsal


Simulate = Callable[..., "Rehearsal"]


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Play a graph: ``simulate("graph.yaml", "scenario.yaml")``.

    The graph is a file, a `Graph` or a `Plan`; the scenario a file, or a mapping of its fields. Files are found from
    the directory of the test. A case that goes another way than it is to fails the test and says how; with
    ``check=False`` nothing fails. What came of the cases is returned.
    """
    folder = request.path.parent

    def play(
        graph: "Plan | Graph | str | Path", scenario: "str | Path | Mapping[str, Any]", *, check: bool = True
    ) -> "Rehearsal":
        __tracebackhide__ = True
        from loom_cli.project.scenarios import rehearse
        from loom_dsl.errors import LoomError
        from loom_dsl.simulation.report import explanation

        try:
            played = rehearse(_found(folder, graph), _found(folder, scenario))
        except LoomError as error:
            pytest.fail(error.message, pytrace=False)
        told = explanation(played) if check else ""
        if told:
            pytest.fail(told, pytrace=False)
        return played

    return play


def _found(folder: Path, given: Any) -> Any:
    return folder / given if isinstance(given, str | Path) else given
