"""What a typed model finds wrong with a document, said with places and near names."""

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from loom_dsl.canonical import Json
from loom_dsl.errors import Diagnostic

if TYPE_CHECKING:
    from loom_dsl.document import Document

Model = TypeVar("Model", bound=BaseModel)
_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type"), "should be a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "should be a mapping"),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "string_type": "should be text",
}
"""What pydantic's kinds of errors mean in words of YAML, not of Python."""


def suggest(word: str, candidates: Iterable[str]) -> str:
    """Say ``did you mean `x`?`` when a candidate is near to the word, else nothing."""
    near = difflib.get_close_matches(word, sorted(candidates), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def type_name(value: Json) -> str:
    """Name a JSON value's type for people."""
    names = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}
    return names.get(type(value), "null")


def shown(value: Json) -> str:
    """Quote a value in a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def model_findings(
    document: "Document", model: type[Model], content: Mapping[str, Json]
) -> tuple[Model | None, list[Diagnostic]]:
    """Check content against a model: the model's instance, or everything that is wrong with it, in document order.

    The content is the document's, perhaps with references resolved. Messages quote the document as it was
    written, so that a resolved value does not show.
    """
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        found = {_finding(document, model, detail) for detail in error.errors(include_url=False)}
    return None, sorted(found, key=lambda d: (d.line or 0, d.column or 0, d.code, d.message))


def _finding(document: "Document", model: type[BaseModel], detail: ErrorDetails) -> Diagnostic:
    kind, path = detail["type"], _document_path(document, detail["loc"], detail["type"])
    name = _dotted(path)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        fields = fields_at(model, path[:-1])
        if path[-1] in fields:  # another member of a union has it
            message = f"field `{path[-1]}` does not go with the other fields here"
            return document.diagnostic("L002", message, path, key=True)
        hint = suggest(str(path[-1]), fields)
        message = f"unknown field `{path[-1]}`" + (f"; {hint}" if hint else "")
        known = ", ".join(sorted(fields))
        fix = "" if hint or not known else f"known fields: {known}"
        return document.diagnostic("L002", message, path, fix=fix, key=True)
    if kind == "missing":
        owner = f" in `{_dotted(path[:-1])}`" if path[:-1] else ""
        return document.diagnostic("L003", f"missing field `{path[-1]}`{owner}", path, fix="add it")
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind not in ("value_error", "assertion_error"):
        message = _EXPECTED.get(kind) or (message[:1].lower() + message[1:]).removeprefix("input ")
        message = f"{message}, not {_quoted(document, path)}"
    return document.diagnostic("L004", f"`{name}`: {message}" if name else message, path)


def _quoted(document: "Document", path: Sequence[str | int]) -> str:
    try:
        value = document.at(path)
    except KeyError:
        return "missing"
    return f"a {type_name(value)}" if isinstance(value, dict | list) else shown(value)


def _document_path(document: "Document", location: Sequence[str | int], kind: str) -> tuple[str | int, ...]:
    """Leave out what pydantic adds to a location: the tags and names of a union's members.

    A tag can be a field's name too (a node of the kind `approval` has a field `approval`), so what fits the document
    best is taken: with the location's last part if that is anywhere, and as much of the rest as there is.
    """
    if not location:
        return ()
    *outer, last = location
    paths = sorted(_paths(document, outer), key=len, reverse=True)
    for path in paths:
        if _is_there(document, (*path, last)):
            return (*path, last)
    return (*paths[0], last) if kind == "missing" else paths[0]


def _paths(document: "Document", parts: Sequence[str | int]) -> list[tuple[str | int, ...]]:
    """Every path to a mapping or a list that is left when some of the parts are left out."""
    found: list[tuple[str | int, ...]] = [()]
    for part in parts:
        longer = [(*path, part) for path in found if _is_there(document, (*path, part), inner=True)]
        found = list(dict.fromkeys([*longer, *found]))
    return found


def _is_there(document: "Document", path: Sequence[str | int], *, inner: bool = False) -> bool:
    try:
        value = document.at(path)
    except KeyError:
        return False
    return isinstance(value, dict | list) or not inner


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def fields_at(model: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """Name the fields that a model knows at a path; of all members where it is a union."""
    annotations: list[Any] = [model]
    for part in path:
        annotations = [inner for outer in annotations for inner in _inside(outer, part)]
    return {alias for found in annotations for member in _members(found) for alias in _names(member)}


def _names(member: Any) -> Iterator[str]:
    if isinstance(member, type) and issubclass(member, BaseModel):
        for name, info in member.model_fields.items():
            yield info.alias or name


def _members(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for name, info in member.model_fields.items():
                if part in (name, info.alias):
                    yield info.annotation
        elif get_args(member):
            yield get_args(member)[-2 if get_args(member)[-1] is ... else -1]
