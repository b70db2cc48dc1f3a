"""From a function's signature and docstring to the pydantic model and the JSON schema of its arguments."""

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from loom_dsl.errors import ToolDeclarationError

_SECTION = re.compile(
    r"(args|arguments|parameters|returns?|raises|yields?|examples?|notes?|attributes|see also|warnings?|todo):\s*",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring that a model is told."""

    description: str
    arguments: Mapping[str, str]


@dataclass(frozen=True)
class Declaration:
    """The arguments of a function: the model that validates them, and the parameters that get the context."""

    model: type[BaseModel]
    context_parameters: tuple[str, ...]


def declare(function: Callable[..., Any], context_type: type, model: type[BaseModel] | None = None) -> Declaration:
    """Read a function's signature.

    Args:
        function: A plain function or a bound method.
        context_type: Parameters annotated with it are not arguments.
        model: Validates instead of one made from the signature.

    Raises:
        ToolDeclarationError: The signature cannot be offered to a model.
    """
    code = inspect.unwrap(function)
    if not (inspect.isfunction(code) or inspect.ismethod(code)):
        raise ToolDeclarationError(f"{function!r} is not a function; wrap it in a function with annotated parameters")
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ToolDeclarationError(
            f"{place(function)}: a tool returns its whole result instead of yielding it; "
            "take a ToolContext and call its progress() for partial output"
        )
    hints = _hints(function)
    descriptions = parse_docstring(inspect.getdoc(function) or "").arguments
    fields: dict[str, Any] = {}
    context = []
    for name, parameter in inspect.signature(function).parameters.items():
        if _is_context(hints.get(name), context_type):
            context.append(name)
        elif model is None:
            fields[f"argument_{name}"] = _field(function, parameter, hints, descriptions.get(name))
    if model is None:
        made = create_model(code.__name__.strip("<>"), __config__=ConfigDict(extra="forbid"), **fields)
        return Declaration(made, tuple(context))
    _check_schema(function, model)
    return Declaration(model, tuple(context))


def place(function: Callable[..., Any]) -> str:
    """Name a function with its file and line, for a message."""
    inner = inspect.unwrap(function)
    name = getattr(inner, "__qualname__", repr(inner))
    code = getattr(inner, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else str(name)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ToolDeclarationError(
            f"{place(function)}: an annotation names {error.name!r}, which is not defined; import it at module level"
        ) from error
    except Exception as error:
        raise ToolDeclarationError(f"{place(function)}: an annotation cannot be read: {error}") from error


def _is_context(hint: Any, context_type: type) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(part is context_type for part in get_args(hint))
    return hint is context_type


def _field(
    function: Callable[..., Any], parameter: inspect.Parameter, hints: dict[str, Any], description: str | None
) -> tuple[Any, Any]:
    """Describe one parameter. The field's own name is another, so that `schema`, `json` or `_x` can be arguments."""
    name, where = parameter.name, f"{place(function)}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolDeclarationError(f"{where} takes any number of arguments ({stars}{name}); name each of them")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDeclarationError(f"{where} is positional-only; arguments are passed by name, so remove the '/'")
    if name not in hints:
        raise ToolDeclarationError(f"{where} has no annotation; write its type, for example {name}: str")
    annotation = hints[name]
    default = ... if parameter.default is parameter.empty else parameter.default
    if default is None:
        annotation = Union[annotation, None]  # noqa: UP007 - `|` does not work on every annotation that typing has
    said = None if _is_described(annotation, default) else description
    _check_type(where, annotation, default)
    info = Field(alias=name) if said is None else Field(alias=name, description=said)
    return Annotated[annotation, info], default


def _is_described(annotation: Any, default: Any) -> bool:
    infos = [part for part in (default, *get_args(annotation)) if isinstance(part, FieldInfo)]
    return any(info.description for info in infos)


def _check_type(where: str, annotation: Any, default: Any) -> None:
    try:
        adapter = TypeAdapter(annotation)
        adapter.json_schema()
    except (PydanticUserError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ToolDeclarationError(
            f"{where} has a type that JSON cannot carry; use str, int, float, bool, list, dict, Literal, an Enum, "
            f"a dataclass or a pydantic model ({reason})"
        ) from error
    if default is ... or isinstance(default, FieldInfo):
        return
    try:
        adapter.validate_json(json.dumps(to_jsonable_python(default)), strict=True)
    except (ValidationError, PydanticSerializationError, ValueError) as error:
        raise ToolDeclarationError(f"{where} has the default {default!r}, which does not fit its annotation") from error


def _check_schema(function: Callable[..., Any], model: type[BaseModel]) -> None:
    try:
        model.model_json_schema()
    except PydanticUserError as error:
        reason = str(error).splitlines()[0]
        raise ToolDeclarationError(f"{place(function)}: {model.__name__} has no JSON schema ({reason})") from error


def context_parameters(function: Callable[..., Any], context_type: type) -> tuple[str, ...]:
    """Give the parameters of a function that get the context."""
    hints = _hints(function)
    return tuple(name for name in inspect.signature(function).parameters if _is_context(hints.get(name), context_type))


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Give a model's JSON schema as a tool's. Arguments that it does not name are wrong, unless it says otherwise."""
    schema = clean_schema(model.model_json_schema(by_alias=True))
    if model.model_config.get("extra") is None:
        schema.setdefault("additionalProperties", False)
    return schema


def clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out what tells a model nothing: pydantic's titles and the docstring of the made class."""
    cleaned: dict[str, Any] = _clean(schema)
    cleaned.pop("description", None)
    cleaned.setdefault("properties", {})
    return cleaned


def _clean(node: Any) -> Any:
    if isinstance(node, list):
        return [_clean(item) for item in node]
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs", "patternProperties"):
            result[key] = {name: _clean(child) for name, child in value.items()}
        elif key in ("enum", "const", "examples", "required"):
            result[key] = value
        elif key == "default":
            if value is not None:
                result[key] = value
        elif key != "title":
            result[key] = _clean(value)
    return result


def parse_docstring(text: str) -> Docstring:
    """Split a Google-style docstring into its description and what `Args:` says of each parameter."""
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current, indent = "", "", 0
    for line in text.expandtabs().splitlines():
        if found := _SECTION.fullmatch(line):
            section, current = found[1].lower(), ""
        elif not section:
            description.append(line)
        elif line.strip() and not line.startswith(" "):
            section = ""
            description.append(line)
        elif section in ("args", "arguments", "parameters"):
            head = _ARGUMENT.fullmatch(line)
            if head and (not current or len(head[1]) <= indent):
                current, indent = head[2], len(head[1])
                arguments[current] = [head[3]]
            elif current:
                arguments[current].append(line.strip())
    said = {name: " ".join(part for part in lines if part) for name, lines in arguments.items()}
    return Docstring("\n".join(description).strip(), said)
