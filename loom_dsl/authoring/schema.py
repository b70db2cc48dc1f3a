"""JSON Schema of Loom's documents, for editors, other tools and models that write them.

It is made from the models that read documents, with the short forms that they accept and what their docstrings say.
Draft 7, which every editor knows. A document that the schema refuses is refused by Loom, too; what a schema cannot say
(that a target is there, that an expression compiles) is left to ``loom validate``.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core.core_schema import BeforeValidatorFunctionSchema, ModelSchema

from loom_dsl.agent.definition import Agent
from loom_dsl.fields import listed, seconds
from loom_dsl.graph.edges import Node, seconds_or_mapping
from loom_dsl.graph.graph import Defaults, Graph
from loom_dsl.graph.nodes import NODE_KINDS, Branch
from loom_dsl.observe.webhooks import WebhookSettings
from loom_dsl.permissions.deployment import Policy
from loom_dsl.simulation.scenario import Scenario
from loom_dsl.simulation.script import Script

# What fields mean: the docstrings below the attributes of a class, read from its source.


def field_docstrings(cls: type) -> dict[str, str]:
    """Give the docstring below each attribute of a class and of Loom's classes that it inherits from.

    Each is one line, with single backticks. Empty where the source is not there, as in a program without its files.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("loom_"):
            found |= _own(base)
    return found


def plain(text: str) -> str:
    """Write a docstring in one line, with single backticks."""
    return " ".join(text.replace("``", "`").split())


def _own(cls: type) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[name] = plain(meaning)
    return found


# The short forms that the validators of a graph's parts accept, as JSON Schema.
#
# One schema often stands for several forms: `pattern` and `enum` look at texts only, `items` at lists only and
# `properties` at mappings only, so that an editor tells what is wrong with the form that was written.


Schema = dict[str, Any]

DURATION: Schema = {
    "description": "A duration, such as 500ms, 90s, 5m, 4h or 1d.",
    "type": "string",
    "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$",
    "patternErrorMessage": "this is no duration: write a number and a unit, such as 500ms, 90s, 5m, 4h or 1d",
}
"""`patternErrorMessage` is a word of editors; validators pass it over."""
MAPPED: Schema = {"description": "A `${…}` that gives the value.", "type": "string", "pattern": r"^\$\{"}
_READS_DURATIONS: dict[Callable[..., Any], list[Schema]] = {seconds: [DURATION], seconds_or_mapping: [DURATION, MAPPED]}
EDGE = {"$ref": "#/definitions/Edge"}


def _or_text(schema: Schema, **keywords: Any) -> Schema:
    """A mapping, or a text that is short for one."""
    return {**schema, "type": ["string", "object"], **keywords}


def _next(schema: Schema) -> Schema:
    names, properties = {"items": {"type": "string"}}, schema["properties"]
    thread = {"description": "The node where so many tokens go (a thread split).", "type": "string"}
    return {
        **schema,
        "description": "The ways out: a node; a list of nodes, all of them at once; a list of edges, of which the "
        "first that holds is taken; or a mapping.",
        "type": ["string", "array", "object"],
        "properties": {**properties, "to": thread},
        "if": {"type": "array", **names},
        "then": {},
        "else": {"items": EDGE},
        "dependencies": {
            "first": _without("each", "all", "times", "to"),
            "each": _without("all", "times", "to"),
            "all": _without("to"),
            "times": {"anyOf": [{"required": ["to"]}, _ONE_NODE]},
            "to": ["times"],
        },
    }


_ONE_NODE: Schema = {"required": ["all"], "properties": {"all": {"minItems": 1, "maxItems": 1}}}


def _without(*keys: str) -> Schema:
    return {"not": {"anyOf": [{"required": [key]} for key in keys]}}


def _deadline(schema: Schema) -> Schema:
    never = {"description": "There is none, on purpose.", "const": "never"}
    after = schema["properties"]["after"]
    forms = [never, DURATION, MAPPED, {"type": "number"}, {"type": "null"}]
    about = {key: value for key, value in after.items() if key == "description"}
    full = {
        **schema,
        "properties": {**schema["properties"], "after": {**about, "anyOf": forms}},
        "if": {"properties": {"after": {"enum": ["never", None]}}},
        "then": {},
        "else": {"required": ["to"], "properties": {"to": {"type": "string"}}},
    }
    return {"description": schema["description"], "anyOf": [never, full]}


def _typed(schema: Schema) -> Schema:
    """A field of the input or the state: its type's name is short for it."""
    return {"description": schema["description"], "anyOf": [{"enum": schema["properties"]["type"]["enum"]}, schema]}


def _approval(schema: Schema) -> Schema:
    ask = {"description": "What people read: short for a request with this `summary`."}
    full = {key: value for key, value in schema.items() if key != "required"}
    return _or_text(
        {**full, "properties": {"ask": ask, **schema["properties"]}},
        **{
            "if": {"type": "object"},
            "then": {"oneOf": [{"required": ["ask"]}, {"required": ["request"]}]},
        },
    )


def _approved(schema: Schema) -> Schema:
    way = {"type": "string"}
    ways = {
        "approved": {"description": "Where it goes on after `approve`: with `rejected` short for `next`.", **way},
        "rejected": {"description": "Where it goes on after every other answer.", **way},
    }
    pair = {"required": ["approved", "rejected"], "not": {"required": ["next"]}}
    neither = {"not": {"anyOf": [{"required": ["approved"]}, {"required": ["rejected"]}]}}
    return {**schema, "properties": {**schema["properties"], **ways}, "oneOf": [pair, neither]}


def _fail(schema: Schema) -> Schema:
    return {**schema, "properties": {**schema["properties"], "fail": _either_text(schema["properties"]["fail"])}}


def _either_text(schema: Schema) -> Schema:
    kept = {key: value for key, value in schema.items() if key == "description"}
    return {**kept, "anyOf": [{"type": "string"}, {"$ref": schema["$ref"]}]}


def _timer(schema: Schema) -> Schema:
    properties = schema["properties"]
    full = {**schema, "oneOf": [{"required": ["after"]}, {"required": ["until"]}]}
    return {"description": schema["description"], "anyOf": [*properties["after"]["anyOf"][:-1], full]}


def _join(schema: Schema) -> Schema:
    modes = schema["properties"]["mode"]["enum"]
    alone = [{"not": {"required": ["need", "threads"]}}]
    taken = {"required": ["mode"], "properties": {"mode": {"const": "taken"}}}
    full = {**schema, "allOf": [*alone, {"if": taken, "then": _without("need", "threads")}]}
    return {"description": schema["description"], "anyOf": [{"enum": modes}, full]}


def _loop(schema: Schema) -> Schema:
    return {**_running(schema), "oneOf": [{"required": ["while"]}, {"required": ["until"]}]}


def _map(schema: Schema) -> Schema:
    one = {"properties": {"in_order": {"const": True}}, "required": ["in_order"]}
    return {**_running(schema), "if": one, "then": {"properties": {"window": {"const": 1}}}}


def _running(schema: Schema) -> Schema:
    """What runs a graph names it, or has it, or has its only node."""
    kept = {key: value for key, value in schema["properties"]["do"].items() if key == "description"}
    several = {"anyOf": [{"required": ["nodes"]}, {"required": ["file"]}]}
    alone = {"allOf": [{"$ref": "#/definitions/AnyNode"}, _without("next", "approved", "rejected")]}
    graph = {"if": several, "then": {"$ref": "#/definitions/GraphEntry"}, "else": alone}
    do = {**kept, "type": ["string", "object"], "if": {"type": "object"}, "then": graph}
    return {**schema, "properties": {**schema["properties"], "do": do}}


def _subgraph(schema: Schema) -> Schema:
    graph = dict(schema["properties"]["graph"])
    named = {"oneOf": graph.pop("oneOf")}
    inside = {"if": {"type": "object", "required": ["nodes"]}, "then": {"$ref": "#/definitions/Body"}, "else": named}
    return {**schema, "properties": {**schema["properties"], "graph": {**graph, **inside}}}


def _permissions(schema: Schema) -> Schema:
    """Lists of rules, or a map from a tool to what is decided about it."""
    decisions = schema["properties"]["default"]["anyOf"][0]["enum"]
    listed = [{"required": [name]} for name in decisions]
    return {
        **schema,
        "additionalProperties": {"description": "What is decided about this tool.", "enum": decisions},
        "if": {"anyOf": listed},
        "then": {"propertyNames": {"enum": list(schema["properties"])}},
    }


def _mocked_result(schema: Schema) -> Schema:
    """What is no mapping is the result itself."""
    return {key: value for key, value in schema.items() if key != "type"}


def _decision(schema: Schema) -> Schema:
    return {**schema, "type": ["string", "object", "null"]}


FORMS: dict[str, Callable[[Schema], Schema]] = {
    "Next": _next,
    "Deadline": _deadline,
    "InputField": _typed,
    "StateField": _typed,
    "Approval": _approved,
    "ApprovalSpec": _approval,
    "EventSpec": _or_text,
    "TimerSpec": _timer,
    "JoinSpec": _join,
    "Fail": _fail,
    "LoopSpec": _loop,
    "MapSpec": _map,
    "Subgraph": _subgraph,
    "Permissions": _permissions,
    "MockedError": _or_text,
    "MockedResult": _mocked_result,
    "MockedDecision": _decision,
    "ExpectedFailure": _or_text,
    "ExpectedEvent": _or_text,
}
"""What a class with short forms makes of its schema. Every model with a validator that reads one is here."""


# What a whole document has beside its model: the header, a node's kind by its key, agents in files, and `extends`.


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
    for name in ("Agent", "Limits", "ApprovalPolicy"):
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
    definitions["ScriptedStep"] = {**definitions["ScriptedStep"], "anyOf": [{"required": [name]} for name in says]}
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


DRAFT = "http://json-schema.org/draft-07/schema#"
REFERENCE = "#/definitions/{model}"
_ROOTS: dict[str, tuple[type[BaseModel], Callable[[dict[str, Schema]], None]]] = {
    "graph": (Graph, finish_graph),
    "agent": (Agent, finish_agent),
    "fake-model": (Script, finish_script),
    "scenario": (Scenario, finish_scenario),
    "policy": (Policy, partial(finish_plain, name="Policy", kind="policy")),
    "webhooks": (WebhookSettings, partial(finish_plain, name="WebhookSettings", kind="webhooks")),
}
KINDS = tuple(_ROOTS)
"""The kinds of documents that have a schema."""


def schema_of(kind: str | None = None) -> Schema:
    """Give the JSON Schema of one kind of document, or of all kinds: one schema that picks by `kind`.

    Raises:
        KeyError: There is no such kind.
    """
    chosen = KINDS if kind is None else (kind,)
    definitions: dict[str, Schema] = {}
    for name in chosen:
        definitions |= _definitions(name)
    definitions = dict(sorted(definitions.items()))
    if kind is not None:
        root = definitions.pop(_title(kind))
        return {"$schema": DRAFT, **root, "definitions": definitions}
    return {"$schema": DRAFT, **_any_kind(chosen, definitions), "definitions": definitions}


def _title(kind: str) -> str:
    return _ROOTS[kind][0].__name__


def _any_kind(kinds: tuple[str, ...], definitions: dict[str, Schema]) -> Schema:
    told = "; ".join(f"`{kind}`: {definitions[_title(kind)]['description']}" for kind in kinds)
    return {
        "title": "Loom document",
        "description": "A document of Loom; its `kind` says which.",
        "type": "object",
        "required": ["loom", "kind"],
        "properties": {
            "loom": {"description": "Version of the format.", "const": 1},
            "kind": {"description": f"What the document is. {told}", "enum": list(kinds)},
        },
        "allOf": [
            {
                "if": {"required": ["kind"], "properties": {"kind": {"const": kind}}},
                "then": {"$ref": REFERENCE.format(model=_title(kind))},
            }
            for kind in kinds
        ],
    }


def _definitions(kind: str) -> dict[str, Schema]:
    """Everything that documents of a kind are made of, by class; the document itself is among it."""
    model, finish = _ROOTS[kind]
    roots = (model, Agent, Defaults) if model is Graph else (model,)
    _, made = models_json_schema(
        [(root, "validation") for root in roots], ref_template=REFERENCE, schema_generator=_Generator
    )
    definitions: dict[str, Schema] = made["$defs"]
    for name, form in FORMS.items():
        if name in definitions:
            definitions[name] = form(definitions[name])
    finish(definitions)
    definitions = {name: _tidied(schema) for name, schema in definitions.items()}
    definitions[model.__name__]["title"] = f"Loom {kind}"
    return definitions


class _Generator(GenerateJsonSchema):
    """Says of each model what its docstrings say, and where durations are taken, or one for a list."""

    def model_schema(self, schema: ModelSchema) -> Schema:
        cls = schema["cls"]
        return _described(cls, super().model_schema(schema))

    def function_before_schema(self, schema: BeforeValidatorFunctionSchema) -> Schema:
        made = super().function_before_schema(schema)
        read = schema["function"]["function"]
        if read is listed:
            return {"anyOf": [made["items"], made]}
        forms = _READS_DURATIONS.get(read)
        if forms is None:
            return made
        return {"anyOf": [*forms, *(part for part in made.get("anyOf", [made]) if part.get("type") != "string")]}


def _described(model: type[BaseModel], schema: Schema) -> Schema:
    """Write into a schema what the docstrings of its class say."""
    meanings, about = field_docstrings(model), plain(model.__doc__ or "")
    properties: dict[str, Schema] = {}
    for name, field in model.model_fields.items():
        shown = field.alias or name
        if shown not in schema["properties"]:  # what Loom writes itself is in no schema
            continue
        meaning = meanings.get(name, "")
        if issubclass(model, Node) and shown == model.kind:
            meaning = f"{about} {meaning}".strip()
        properties[shown] = {**schema["properties"][shown], **({"description": meaning} if meaning else {})}
    return {**schema, "description": about, "properties": properties}


def _tidied(schema: Any, *, named: bool = False) -> Any:
    """Leave out what says nothing, and say in one way what pydantic says in several.

    Args:
        schema: A schema, or a part of one.
        named: It is a mapping of names to schemas, whose keys are no keywords.
    """
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {
        key: _tidied(value, named=key in ("properties", "patternProperties") and not named)
        for key, value in schema.items()
        if named or not (key == "title" or (key == "default" and (not value or isinstance(value, dict))))
    }
    if not named and len(patterns := tidy.get("patternProperties", {})) == 1:
        del tidy["patternProperties"]
        ((pattern, value),) = patterns.items()
        tidy |= {"propertyNames": {"pattern": pattern}, "additionalProperties": value}
    return tidy
