"""JSON Schema of Loom's documents, for editors, other tools and models that write them.

It is made from the models that read documents, with the short forms that they accept and what their docstrings say.
Draft 7, which every editor knows. A document that the schema refuses is refused by Loom, too; what a schema cannot say
(that a target is there, that an expression compiles) is left to ``loom validate``.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

from pydantic import BaseModel

from loom_dsl.agent import Agent
from loom_dsl.docstrings import field_docstrings, plain
from loom_dsl.graph import Defaults, Graph
from loom_dsl.parts import Node
from loom_dsl.policy import Policy
from loom_dsl.scenario import Scenario
from loom_dsl.schema_documents import finish_agent, finish_graph, finish_plain, finish_scenario, finish_script
from loom_dsl.schema_forms import FORMS, Schema, with_durations
from loom_dsl.script import Script
from loom_dsl.webhooks import WebhookSettings

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
    definitions: dict[str, Schema] = {}
    extra = (Agent, Defaults) if model is Graph else ()
    for root in (model, *extra):
        schema = root.model_json_schema(by_alias=True, ref_template=REFERENCE)
        definitions |= schema.pop("$defs", {})
        definitions[root.__name__] = schema
        # What only Loom itself writes is in no schema.
        for found in (found for found in models_of(root) if found.__name__ in definitions):
            definitions[found.__name__] = _described(found, with_durations(found, definitions[found.__name__]))
    for name, form in FORMS.items():
        if name in definitions:
            definitions[name] = form(definitions[name])
    finish(definitions)
    definitions = {name: _tidied(schema) for name, schema in definitions.items()}
    definitions[model.__name__]["title"] = f"Loom {kind}"
    return definitions


def models_of(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Give a model and every model that its fields hold, each once."""
    found: dict[type[BaseModel], None] = {}
    queue: list[Any] = [model]
    while queue:
        one = queue.pop()
        if not (isinstance(one, type) and issubclass(one, BaseModel)):
            queue += get_args(one)
        elif one not in found:
            found[one] = None
            queue += [field.annotation for field in one.model_fields.values()]
            queue += [part for field in one.model_fields.values() for part in field.metadata]
    yield from found


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
