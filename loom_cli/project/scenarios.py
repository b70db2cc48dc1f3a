"""Playing scenarios from files: which graph, which scenario, and whether the two fit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loom_cli.project.files import plan_of, read_document
from loom_client.start.submission import plan_of as compiled
from loom_dsl.documents.document import load_document
from loom_dsl.errors import Diagnostic, DocumentError, UserError
from loom_dsl.graph.graph import Graph
from loom_dsl.graph.plan import Plan
from loom_dsl.simulation.check import check_scenario
from loom_dsl.simulation.run import Rehearsal, play_scenario
from loom_dsl.simulation.scenario import LoadedScenario, Scenario, load_scenario, read_scenario
from loom_dsl.text.canonical import canonical_json


@dataclass(frozen=True, slots=True)
class Prepared:
    """A graph, and a scenario that fits it.

    Attributes:
        file: The graph's file as a scenario in this directory names it.
        scenario: None when there is none.
        warnings: What is doubtful about the graph.
    """

    plan: Plan
    file: str
    scenario: Scenario | None
    warnings: tuple[Diagnostic, ...] = ()


def prepare(target: str, mock: Path | None, env: Mapping[str, str]) -> Prepared:
    """Read a graph and a scenario.

    Args:
        target: The graph's file; or that of a scenario that names the file of its graph.
        mock: The scenario, or None when there is none or `target` is one.
        env: The environment's variables.

    Raises:
        DocumentError: One of them is not valid, or they do not fit.
        UserError: It is not known which graph.
    """
    path = Path(target)
    document = load_document(read_document(path), target) if path.exists() else None
    kind = "" if document is None else document.data["kind"]
    if kind not in ("graph", "scenario", ""):
        raise UserError(f"{target} is a {kind} document; give the file of a graph, or of a scenario")
    if kind == "scenario" and mock is not None:
        raise UserError(f"{target} is a scenario already; give a graph with --mock, or the scenario alone")
    loaded, graph, warnings = None, target, list[Diagnostic]()
    if document is not None and kind == "scenario":
        loaded, document = read_scenario(replace(document, source=str(path))), None
        graph = graph_of(path, loaded)
    elif mock is not None:
        loaded = load_scenario(read_document(mock), str(mock))
    plan = plan_of(graph, env, warned=warnings.append, document=document)
    if loaded is not None:
        findings = check_scenario(loaded, plan)
        if findings:
            raise DocumentError(findings)
    return Prepared(plan, Path(graph).name, loaded.scenario if loaded else None, tuple(warnings))


def graph_of(place: Path, loaded: LoadedScenario) -> str:
    """The file of the graph that a scenario is for.

    Raises:
        DocumentError: It does not name one.
    """
    file = loaded.scenario.graph_file()
    if file is None:
        message = "the scenario does not say which file its graph is in"
        fix = "write `graph: FILE.yaml`, or run `loom simulate GRAPH --mock FILE`"
        raise DocumentError([loaded.document.diagnostic("L003", message, ("graph",), fix=fix)])
    return str(place.parent / file)


def rehearse(graph: Plan | Graph | str | Path, scenario: str | Path | Mapping[str, Any]) -> Rehearsal:
    """Play a scenario.

    Args:
        graph: A file, or a graph that was made in Python.
        scenario: A file, or the fields of a scenario without its head.

    Raises:
        DocumentError: One of them is not valid, or they do not fit.
        UserError: The scenario cannot be played.
    """
    plan, loaded = compiled(graph), load_given(scenario)
    findings = check_scenario(loaded, plan)
    if findings:
        raise DocumentError(findings)
    return play_scenario(plan, loaded.scenario)


def load_given(scenario: str | Path | Mapping[str, Any]) -> LoadedScenario:
    """Read a scenario from a file, or take one that was written in Python.

    Raises:
        DocumentError: It is not a scenario.
    """
    if isinstance(scenario, str | Path):
        return load_scenario(read_document(Path(scenario)), str(scenario))
    try:
        text = canonical_json({"loom": 1, "kind": "scenario", "name": "scenario", **scenario})
    except (TypeError, ValueError, RecursionError):
        raise UserError("the scenario is not JSON: give text, numbers, lists and mappings") from None
    return load_scenario(text, "scenario")
