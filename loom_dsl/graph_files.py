"""The graphs of a graph's document that are in files of their own: read, checked, and put in their place."""

import dataclasses
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

from loom_dsl.diagnostic import Diagnostic
from loom_dsl.document import Document
from loom_dsl.errors import DocumentError
from loom_dsl.graph_agents import ReadFile, read_named
from loom_dsl.plan import Plan

Compile = Callable[[str | bytes, str, ReadFile, Sequence[str]], tuple[Plan | None, list[Diagnostic]]]
"""Compiles a file: its text, its name, what reads the files beside it, and the files that led to it."""
_NOT_APPLIED = ("permissions", "approvals")


class Included:
    """A document with its files in place.

    Attributes:
        document: The document; an entry ``{file: …}`` of `graphs` is the graph of that file.
        keys: Names of the graphs that came from files: what is wrong in them is told with the file's own places.
        missing: Names of the graphs whose files cannot be used.
        agents: Normal forms of the agents that the files brought along, by name.
        findings: What is wrong with the files, and with naming them.
    """

    def __init__(
        self, document: Document, read_file: ReadFile | None, compile_file: Compile, chain: Sequence[str]
    ) -> None:
        self.document = document
        self.keys: set[str] = set()
        self.missing: set[str] = set()
        self.agents: dict[str, dict[str, Any]] = {}
        self.findings: list[Diagnostic] = []
        self._read, self._compile, self._chain = read_file, compile_file, (*chain, posixpath.normpath(document.source))
        entries = document.data.get("graphs") if isinstance(document.data, dict) else None
        named = entries if isinstance(entries, dict) else {}
        graphs = {key: entry for key, entry in named.items() if not _is_file(entry)}
        for key, entry in named.items():
            if _is_file(entry):
                self.keys.add(key)
                try:
                    graphs |= self._included(key, entry, graphs)
                except DocumentError as error:
                    self.findings += error.diagnostics
                    self.missing.add(key)
        if len(graphs) != len(named) or self.keys:
            self.document = dataclasses.replace(document, data={**document.data, "graphs": graphs})

    def _included(self, key: str, entry: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
        """Give the graph of a file, and the graphs that it brings along."""
        plan = self._plan(key, entry)
        own = plan.root
        head = {name: value for name, value in plan.graphs[own].dump().items() if name not in ("loom", "kind", "name")}
        inner = head.pop("graphs", {})
        head.pop("version", None)
        for name in _NOT_APPLIED:
            if name in head:
                self._refuse("L011", f"the file of the graph `{key}` has `{name}`, which hold for the graph that is "
                             "started", (key, "file"), f"write `{name}` into this document")  # fmt: skip
        for name, agent in plan.agents.items():
            if self.agents.setdefault(name, dict(agent)) != agent or name in self.document.data.get("agents", {}):
                self._refuse("L011", f"the file of the graph `{key}` has an agent `{name}`, and so has something "
                             "else here", (key, "file"), "rename one of them")  # fmt: skip
        bodies = {name: _renamed(body, own, key) for name, body in {key: head, **inner}.items()}
        self.keys |= set(bodies)
        for name in inner:
            if name in taken or name in self.document.data["graphs"]:
                self._refuse("L011", f"the file of the graph `{key}` has a graph `{name}`, and so has something else "
                             "here", (key, "file"), "rename one of them")  # fmt: skip
        return bodies

    def _plan(self, key: str, entry: Mapping[str, Any]) -> Plan:
        text = read_named(self.document, "graphs", key, entry, self._read, "write the graph into this document")
        read, file = cast(ReadFile, self._read), entry["file"]
        folder = posixpath.dirname(file)
        place = posixpath.normpath(posixpath.join(posixpath.dirname(self.document.source), file))
        if place in self._chain:
            way = " → ".join(posixpath.basename(name) for name in (*self._chain[self._chain.index(place) :], place))
            message = f"the files of graphs lead back to where they began: {way}"
            self._refuse("L011", message, (key, "file"), "let a graph that runs itself name itself")
        plan, told = self._compile(text, place, lambda name: read(posixpath.join(folder, name)), self._chain)
        if plan is None or any(finding.severity == "error" for finding in told):
            raise DocumentError(told)
        self.findings += told
        return plan

    def _refuse(self, code: str, message: str, place: tuple[str, ...], fix: str = "") -> NoReturn:
        raise DocumentError([self.document.diagnostic(code, message, ("graphs", *place), fix=fix)])


def _is_file(entry: object) -> bool:
    return isinstance(entry, dict) and "file" in entry and "nodes" not in entry


def _renamed(body: Mapping[str, Any], own: str, key: str) -> dict[str, Any]:
    """Let nodes that run the file's graph by its name run it by the name that it has here."""
    nodes = {}
    for node_key, node in body["nodes"].items():
        node = dict(node)
        if node.get("graph") == own:
            node["graph"] = key
        for kind in ("map", "loop"):
            if kind in node and node[kind].get("do") == own:
                node[kind] = {**node[kind], "do": key}
        nodes[node_key] = node
    return {**body, "nodes": nodes}
