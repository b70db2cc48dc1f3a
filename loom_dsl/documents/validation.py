"""What a typed model finds wrong with a document, said with places and near names."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from loom_dsl.documents.document import Document
from loom_dsl.errors import Diagnostic, DocumentError
from loom_dsl.expr.template import WrongHole
from loom_dsl.text.canonical import Json
from loom_dsl.text.wording import shown, strange_letter, suggest, type_name

Model = TypeVar("Model", bound=BaseModel)
_CODE = re.compile(r"L[0-9]{3}")
_EXTRA = "extra_forbidden"
_SECRET = re.compile(r"\$\{secret:")
_EXPECTED = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type"), "should be a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "should be a mapping"),
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "string_type": "should be text",
    "string_too_short": "should say something",
}
"""What pydantic's kinds of errors mean in words of YAML, not of Python."""
_PATTERNS = {
    "^[A-Za-z][A-Za-z0-9_]{0,63}$": "letters, digits and _, starting with a letter, at most 64",
    "^[A-Za-z_][A-Za-z0-9_]{0,63}$": "letters, digits and _, not starting with a digit, at most 64",
    "^[a-z][a-z0-9._-]{0,63}$": "lower-case letters, digits and . _ -, starting with a letter, at most 64",
    "^[a-z][a-z0-9_-]{0,63}$": "lower-case letters, digits, - and _, starting with a letter, at most 64",
}
"""What names are made of, in words."""
_TYPES = {
    **dict.fromkeys(("string", "text"), "str"),
    **dict.fromkeys(("integer", "long"), "int"),
    **dict.fromkeys(("number", "double", "decimal"), "float"),
    "boolean": "bool",
    **dict.fromkeys(("array", "tuple", "set"), "list"),
    **dict.fromkeys(("object", "map", "mapping"), "dict"),
    **dict.fromkeys(("json", "null", "none"), "any"),
}
"""What types are called in other languages, and here."""


Hint = Callable[[Mapping[str, Any], Sequence[str | int], Callable[[str, set[str]], str]], tuple[str, str] | None]
"""Takes a document's data, the path of a field that its place does not have, and what finds near names; gives the
message and the advice, or None where it knows nothing better than the schema."""


def model_findings(
    document: Document, model: type[Model], content: Mapping[str, Json], *, hint: Hint | None = None
) -> tuple[Model | None, list[Diagnostic]]:
    """Check content against a model.

    Args:
        document: The document. Messages quote it as it was written, so that a resolved value does not show.
        model: The model.
        content: The document's data, perhaps with references resolved.
        hint: What knows more about a field in the wrong place than the model does.

    Returns:
        The model's instance or None, and everything that is wrong, in document order.
    """
    try:
        return model.model_validate(content), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        told = [detail for detail in details if not _follows(document, model, detail, details, hint)]
        found = _of_unions(dict.fromkeys(one for detail in told for one in _findings(document, model, detail, hint)))
    return None, sorted(found, key=lambda d: (d.line or 0, d.column or 0, d.code, d.message))


_SHOULD = re.compile(r"(?P<what>.*should be )(?P<type>.*)(?P<given>, not .*)", re.DOTALL)


def _of_unions(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Tell once what a value is not, where it may be of several types."""
    found: dict[Any, Diagnostic] = {}
    for one in findings:
        said = _SHOULD.fullmatch(one.message)
        key = (one.line, one.column, said["what"], said["given"]) if said else one
        if said and key in found:
            before = _SHOULD.fullmatch(found[key].message)
            assert before is not None
            one = replace(one, message=f"{said['what']}{before['type']} or {said['type']}{said['given']}")
        found[key] = one
    return list(found.values())


def _follows(
    document: Document,
    model: type[BaseModel],
    detail: ErrorDetails,
    others: Sequence[ErrorDetails],
    hint: Hint | None,
) -> bool:
    """Whether something is only wrong because something else is, which is told itself.

    A list is too short because of members of it; a field is missing because its name is misspelt, or (`start`) because
    that is read from another; a text stands where a mapping should, because its fields stand beside it.
    """
    kind, place = detail["type"], detail["loc"]
    keys = [other["loc"][:-1] for other in others if other["loc"][-1:] == ("[key]",) and other is not detail]
    if any(place[: len(key)] == key and ":" in str(key[-1]) for key in keys):
        return True  # ``a:{end: 1}``, which is a name
    if kind == "too_short":
        return any(len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in others)
    beside = [other["loc"][-1] for other in others if other["type"] == _EXTRA and other["loc"][:-1] == place[:-1]]
    if kind == "missing":
        around = _document_path(document, place, kind)[:-1]
        names = fields_at(model, around)
        meant = any(f"`{place[-1]}`" in suggest(str(name), names) for name in beside)
        advice = [hint(document.data, (*around, name), suggest) for name in beside] if hint is not None else []
        meant = meant or any(said and re.search(rf"[`{{]{place[-1]}[`:]", said[1]) for said in advice)
        return meant or (place[-1] == "start" and "nodes" in names)
    if kind == _EXTRA:
        return place[-1] == "to" and "if" in beside
    path = _document_path(document, place, kind)
    return bool(place) and path[-1:] == place[-1:] and any(name in fields_at(model, path) for name in beside)


def _findings(document: Document, model: type[BaseModel], detail: ErrorDetails, hint: Hint | None) -> list[Diagnostic]:
    if detail["type"] != "L130":
        return [_finding(document, model, detail, hint)]
    path = _document_path(document, detail["loc"], detail["type"])
    return [_of_expression(document, path, one) for one in detail.get("ctx", {}).get("wrong", ())]


def _finding(document: Document, model: type[BaseModel], detail: ErrorDetails, hint: Hint | None) -> Diagnostic:
    kind, path = detail["type"], _document_path(document, detail["loc"], detail["type"])
    name = _dotted(document, path)
    if kind in ("extra_forbidden", "unexpected_keyword_argument") and path:
        said = hint(document.data, path, suggest) if hint is not None else None
        if said is not None:
            return document.diagnostic("L002", said[0], path, fix=said[1], key=True)
        fields = fields_at(model, path[:-1])
        if path[-1] in fields:  # another member of a union has it
            message = f"field `{path[-1]}` does not go with the other fields here"
            return document.diagnostic("L002", message, path, key=True)
        near = suggest(str(path[-1]), fields)
        message = f"unknown field `{path[-1]}`" + (f"; {near}" if near else "")
        known = ", ".join(sorted(fields))
        foreign = strange_letter(str(path[-1]))
        fix = f"the name has {foreign}" if foreign else "" if near or not known else f"known fields: {known}"
        return document.diagnostic("L002", message, path, fix=fix, key=True)
    if kind == "missing" and path:
        owner = f" in `{_dotted(document, path[:-1])}`" if path[:-1] else ""
        return document.diagnostic("L003", f"missing field `{path[-1]}`{owner}", path, fix="add it")
    if _CODE.fullmatch(kind):
        return _coded(document, kind, detail["msg"], path)
    if kind == "string_pattern_mismatch":
        return _not_a_name(document, detail, path)
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    fix = ""
    if kind not in ("value_error", "assertion_error"):
        path = _short_form(document, path, detail["loc"])
        name, fix = _dotted(document, path), _of_the_choices(detail, _value(document, path))
        if kind == "too_short":
            least = detail.get("ctx", {}).get("min_length", 1)
            return document.diagnostic("L004", f"`{name}`: should have at least {least} members", path)
        message = _EXPECTED.get(kind) or (message[:1].lower() + message[1:]).removeprefix("input ")
        message = f"{message}, not {_quoted(document, path)}"
    return document.diagnostic("L004", f"`{name}`: {message}" if name else message, path, fix=fix)


def _not_a_name(document: "Document", detail: ErrorDetails, path: tuple[str | int, ...]) -> Diagnostic:
    """Say what of a name or of another text is not as it must be. The name may be a key: pydantic says so."""
    key = detail["loc"][-1] == "[key]"
    if key and _is_there(document, (*path, detail["loc"][-2])):
        path = (*path, detail["loc"][-2])
    given, pattern = str(detail["input"]), str(detail.get("ctx", {}).get("pattern", ""))
    what = f"{'the name ' if key or path[-1:] == ('name',) else f'`{_dotted(document, path)}`: '}{shown(given)}"
    foreign = strange_letter(given)
    rule = _PATTERNS.get(pattern, f"what fits {pattern}")
    because = f" has {foreign}" if foreign and pattern in _PATTERNS else " is not as it must be"
    fix = "a colon needs a space after it" if key and ":" in given else f"write {rule}"
    return document.diagnostic("L004", what + because, path, fix=fix, key=key)


def _short_form(
    document: "Document", path: tuple[str | int, ...], location: Sequence[str | int]
) -> tuple[str | int, ...]:
    """Where a value is written in a short form, the place of that: ``x: string`` for ``x: {type: string}``."""
    if len(location) >= 2 and not _is_there(document, (*path, location[-1])) and path == tuple(location[:-2]):
        longer = (*path, location[-2])
        return longer if _is_there(document, longer) else path
    return path


def _of_the_choices(detail: ErrorDetails, value: Json) -> str:
    """Say which of the allowed values may be meant."""
    if detail["type"] != "literal_error" or not isinstance(value, str):
        return ""
    allowed = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
    meant = _TYPES.get(value.lower(), "")
    return f"write `{meant}`" if meant in allowed else suggest(value, allowed)


def _value(document: "Document", path: Sequence[str | int]) -> Json:
    try:
        return document.at(path)
    except KeyError:
        return None


def _coded(document: "Document", code: str, message: str, path: tuple[str | int, ...]) -> Diagnostic:
    """A finding with a code of its own."""
    name = _dotted(document, path)
    return document.diagnostic(code, f"`{name}`: {message}" if name else message, path)


def _of_expression(document: "Document", path: tuple[str | int, ...], wrong: WrongHole) -> Diagnostic:
    """A finding about an expression, at the column in the text that holds it."""
    exact = (*path, *wrong.path)
    found = exact if _value(document, exact) == wrong.text else _place_of_text(document, path, wrong.text)
    path, offset = (path, None) if found is None else (found, wrong.offset)
    if secret := _SECRET.search(wrong.text):
        message, code = "a secret is a whole value, never a part of a text or of an expression", "L125"
        fix = "write `${secret:NAME}` alone, in a tool's `with`"
        at = None if offset is None else secret.start()
        return document.diagnostic(code, message, path, fix=fix, offset=at)
    name = _dotted(document, path)
    message = f"`{name}`: {wrong.message}" if name else wrong.message
    return document.diagnostic("L130", message, path, offset=offset)


def _place_of_text(document: "Document", path: tuple[str | int, ...], text: str) -> tuple[str | int, ...] | None:
    """Where a text stands at a path or below it: short forms leave steps out."""
    value = _value(document, path)
    if isinstance(value, str):
        return path if value == text else None
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(item, (str, dict, list)) and (found := _place_of_text(document, (*path, key), text)) is not None:
            return found
    return None


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
    if kind == "missing":  # what is missing here may be there further out
        return (*paths[0], last)
    deep = len(paths[0])
    for path in paths:
        if len(path) + 1 >= deep and _is_there(document, (*path, last)):
            return (*path, last)
    # A short form: the last part that is there is what stands for all below it.
    deepest = [path for path in paths if len(path) == deep]
    parts = [
        (index, path) for path in deepest for index, part in enumerate(outer) if _is_there(document, (*path, part))
    ]
    if not parts:
        return deepest[0]
    index, path = max(parts, key=lambda found: found[0])
    return (*path, outer[index])


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


def _dotted(document: "Document", path: Sequence[str | int]) -> str:
    text = ""
    for part in document.written_at(path):
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def fields_at(model: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """Name the fields that a model knows at a path; of all members where it is a union."""
    annotations: list[Any] = [model]
    for part in path:
        annotations = [inner for outer in annotations for inner in _inside(outer, part)]
    members = [member for found in annotations for member in _members(found)]
    # One mapping may be short for a list of one.
    members += [inner for member in members for inner in _inside(member, 0) if get_origin(member) in (list, tuple)]
    return {alias for found in members for member in _members(found) for alias in _names(member)}


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


def validate_model(document: Document, model: type[Model]) -> Model:
    """Make the typed form of a document. `loom` and `kind` are left out unless they are fields of the model.

    Raises:
        DocumentError: A field is unknown, missing or wrong; all findings at once.
    """
    validated, findings = model_findings(document, model, without_header(document.data, model))
    if validated is None:
        raise DocumentError(findings)
    return validated


def without_header(data: Mapping[str, Json], model: type[BaseModel]) -> dict[str, Json]:
    """Leave out `loom` and `kind`, unless they are fields of the model."""
    return {key: value for key, value in data.items() if key not in ("loom", "kind") or key in model.model_fields}
