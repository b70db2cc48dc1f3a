"""What a whole document has beside its model: the header, a node's kind by its key, agents in files, and `extends`."""

from typing import Any

from loom_dsl.nodes import NODE_KINDS
from loom_dsl.nodes_flow import Branch
from loom_dsl.parts import Node
from loom_dsl.schema_forms import DURATION, Schema

_ENVIRONMENT: Schema = {
    "description": "The value of a variable of the environment.",
    "type": "string",
    "pattern": r"^\$\{env:[A-Za-z_][A-Za-z0-9_]*\}$",
}
_KIND = "What the document is."
_VERSION = "Version of the format."
_DEFAULTS = "What its activities have that do not say it themselves."


def _header(kind: str) -> dict[str, Schema]:
    return {"loom": {"description": _VERSION, "const": 1}, "kind": {"description": _KIND, "const": kind}}


def _with_header(schema: Schema, kind: str) -> Schema:
    properties = {**_header(kind), **schema["properties"], **_header(kind)}
    required = [name for name in schema.get("required", []) if name not in ("loom", "kind")]
    return {**schema, "properties": properties, "required": ["loom", "kind", *required]}


# -- graphs --------------------------------------------------------------------------------------------


def finish_graph(definitions: dict[str, Schema]) -> None:
    """Complete the definitions of a graph's document."""
    definitions["AnyNode"] = _any_node("", _ONE)
    definitions["InsertedNode"] = {
        **_any_node("Inserted", "A node that is put before or after another one of the extended graph."),
        "oneOf": [{"required": ["before"]}, {"required": ["after"]}],
    }
    kinds: list[type[Node]] = [*NODE_KINDS.values(), Branch]
    for kind in kinds:
        definitions[f"Inserted{kind.__name__}"] = _inserted(definitions[kind.__name__])
    definitions["Body"] = _body(definitions["Body"])
    agent = _agent_parts(definitions)
    head = _header("agent")
    definitions["AgentFields"] = {**agent, "properties": {**head, **agent["properties"]}, "required": ["model"]}
    del definitions["Agent"]  # the name of the document
    definitions["AgentEntry"] = _entry("An agent: its fields, or the file that has them.", "agent", "AgentFields")
    definitions["GraphEntry"] = _entry("A graph: its nodes, or the file that has it.", "graph", "Body")
    definitions["Graph"] = _graph(definitions["Graph"])


_ONE = "A node. The key that it has says of what kind it is; without one it only chooses the way."


def _any_node(prefix: str, about: str) -> Schema:
    """A node: which keys it may have follows from the key that says its kind."""
    kinds = [{"required": [key]} for key in NODE_KINDS]
    ref = "#/definitions/" + prefix
    by_key = [
        {"if": {"required": [key]}, "then": {"$ref": f"{ref}{kind.__name__}"}} for key, kind in NODE_KINDS.items()
    ]
    # Named only where there is no kind yet: there an editor offers them.
    offered = {"properties": {key: {"description": _about(kind)} for key, kind in NODE_KINDS.items()}}
    branch = {
        "if": {"not": {"anyOf": kinds}},
        "then": {"allOf": [offered, {"$ref": f"{ref}{Branch.__name__}"}]},
    }
    return {"description": about, "type": "object", "allOf": [*by_key, branch]}


def _about(kind: type[Node]) -> str:
    return " ".join((kind.__doc__ or "").replace("``", "`").split())


def _inserted(schema: Schema) -> Schema:
    beside = {
        "before": {"description": "The node before which this goes: all edges to it lead here.", "type": "string"},
        "after": {"description": "The node after which this goes: it gets its ways out.", "type": "string"},
    }
    return {**schema, "properties": {**beside, **schema["properties"]}}


def _body(schema: Schema) -> Schema:
    nodes: Schema = {**schema["properties"]["nodes"], **_named("AnyNode", schema["properties"]["nodes"])}
    required = [name for name in schema["required"] if name != "start"]
    return {**schema, "properties": {**schema["properties"], "nodes": nodes}, "required": required}


def _named(definition: str, schema: Schema) -> Schema:
    """A mapping of names, as pydantic has them, to what is defined."""
    pattern = next(iter(schema["patternProperties"]))
    return {"patternProperties": {pattern: {"$ref": f"#/definitions/{definition}"}}}


def _graph(schema: Schema) -> Schema:
    whole = _body(schema)
    properties: dict[str, Any] = _with_header(whole, "graph")["properties"]
    agents, graphs, nodes = properties["agents"], properties["graphs"], dict(properties["nodes"])
    least = nodes.pop("minProperties")
    properties |= {
        "nodes": nodes,
        "agents": {**agents, **_named("AgentEntry", agents)},
        "graphs": {**graphs, **_named("GraphEntry", graphs)},
        "defaults": {"description": _DEFAULTS, "$ref": "#/definitions/Defaults"},
        **_extension(nodes),
    }
    return {
        **schema,
        "properties": properties,
        "required": ["loom", "kind", "name"],
        "dependencies": {key: ["extends"] for key in ("insert", "replace", "remove")},
        "if": {"required": ["extends"]},
        "then": {},
        "else": {"required": ["nodes"], "properties": {"nodes": {"minProperties": least}}},
    }


def _extension(nodes: Schema) -> dict[str, Schema]:
    names = {key: value for key, value in nodes.items() if key != "description"}
    return {
        "extends": {"description": "The shipped graph to start from, such as `loom.tt`.", "type": "string"},
        "insert": {
            "description": "Nodes that are put before or after a node of the extended graph.",
            **names,
            **_named("InsertedNode", nodes),
        },
        "replace": {
            "description": "Nodes in place of the extended graph's; they keep its ways out unless they have their own.",
            **names,
        },
        "remove": {
            "description": "Nodes of the extended graph that go, each with the node to which its edges lead then.",
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
    }


def _entry(about: str, what: str, fields: str) -> Schema:
    """A part that stands in the document, or in a file of its own."""
    told = f"The {what}'s file, by its path from this one's directory."
    file = {"description": told, "type": "string", "minLength": 1}
    return {
        "description": about,
        "type": "object",
        "properties": {"file": {"description": told}},
        "if": {"required": ["file"]},
        "then": {"properties": {"file": file}, "additionalProperties": False},
        "else": {"$ref": f"#/definitions/{fields}"},
    }


# -- agents and scripts --------------------------------------------------------------------------------


def finish_agent(definitions: dict[str, Schema]) -> None:
    """Complete the definitions of an agent's document."""
    definitions["Agent"] = _with_header(_agent_parts(definitions), "agent")


def _agent_parts(definitions: dict[str, Schema]) -> Schema:
    """Let values of an agent come from the environment; its schema."""
    for name in ("Agent", "Limits", "Approvals"):
        schema = definitions[name]
        properties = {key: _or_environment(value) for key, value in schema["properties"].items()}
        definitions[name] = {**schema, "properties": properties}
    return definitions["Agent"]


def _or_environment(schema: Schema) -> Schema:
    """A text of a certain form may also be the name of a variable that has it."""
    if schema.get("type") == "string" and ("pattern" in schema or "enum" in schema):
        kept = {key: value for key, value in schema.items() if key in ("description", "default")}
        form = {key: value for key, value in schema.items() if key not in kept}
        return {**kept, "anyOf": [form, _ENVIRONMENT]}
    if any(part.get("type") == "string" or "const" in part for part in schema.get("anyOf", [])):
        return {**schema, "anyOf": [*schema["anyOf"], _ENVIRONMENT]}
    return schema


def finish_plain(definitions: dict[str, Schema], *, name: str, kind: str) -> None:
    """Complete the definitions of a document that has only the header beside its model."""
    definitions[name] = _with_header(definitions[name], kind)


def finish_script(definitions: dict[str, Schema]) -> None:
    """Complete the definitions of a fake model's script."""
    for name, schema in definitions.items():
        definitions[name] = _or_number(schema)
    says = ("say", "big", "calls", "empty", "fail", "hang", "close_after", "malformed")
    definitions["Step"] = {**definitions["Step"], "anyOf": [{"required": [name]} for name in says]}
    when = definitions["When"]
    definitions["When"] = {**when, "anyOf": [{"required": [name]} for name in when["properties"]]}
    script = _with_header(definitions["Script"], "fake-model")
    least = [{"required": [name]} for name in ("steps", "cases", "otherwise")]
    definitions["Script"] = {**script, "anyOf": least}


def _or_number(schema: Any) -> Any:
    """The durations of scripts and scenarios may also be plain seconds."""
    if isinstance(schema, list):
        return [_or_number(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("pattern") == DURATION["pattern"] and "type" in schema:
        kept = {key: value for key, value in schema.items() if key in ("description", "default")}
        return {**kept, "anyOf": [DURATION, {"type": "number", "minimum": 0}]}
    return {key: _or_number(value) for key, value in schema.items()}


# -- scenarios -----------------------------------------------------------------------------------------


def finish_scenario(definitions: dict[str, Schema]) -> None:
    """Complete the definitions of a scenario: what may be one value or a list of successive ones."""
    for name, schema in definitions.items():
        definitions[name] = _or_number(schema)
    for name in ("Scenario", "ScenarioCase"):
        properties = definitions[name]["properties"]
        given = {key: _successive(properties[key]) for key in ("results", "decisions")}
        definitions[name] = {**definitions[name], "properties": {**properties, **given}}
    expected = definitions["Expected"]["properties"]
    arguments = {**expected["arguments"], "additionalProperties": True}
    main = {key: value for key, value in expected["trace"].items() if key != "type"}
    trace = {**main, "type": ["array", "object"], "items": {"type": "string"}}
    properties = {**expected, "arguments": arguments, "trace": trace}
    definitions["Expected"] = {**definitions["Expected"], "properties": properties}
    definitions["Scenario"] = _with_header(definitions["Scenario"], "scenario")


def _successive(schema: Schema) -> Schema:
    items = schema["additionalProperties"]["items"]
    several = {"type": "array", "items": items, "minItems": 1}
    one = {"not": {"type": "array"}, "allOf": [items]}
    return {**schema, "additionalProperties": {"anyOf": [several, one]}}
