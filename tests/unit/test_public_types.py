"""What the public names give back has a type: no `Any`, however deep in containers and records."""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import loom_client
import loom_dsl

OURS = ("loom_dsl", "loom_client", "loom_store")
NAMES = [(package, name) for package in (loom_dsl, loom_client) for name in package.__all__]


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_public_name_gives_back_no_any(package: types.ModuleType, name: str) -> None:
    assert sorted(set(untyped(getattr(package, name), name, set()))) == []


def test_an_any_is_found_wherever_it_is() -> None:
    assert list(untyped(Deep, "Deep", set())) == ["Deep.rows", "Deep.look", "Deep.first"]


@dataclasses.dataclass
class Deep:
    rows: dict[str, list[Any]]

    def look(self, what: Any) -> Iterator[Any]:
        yield what

    @property
    def first(self) -> Any:
        return self.rows


def untyped(thing: object, path: str, seen: set[object]) -> Iterator[str]:
    """Where what a public name gives back is untyped, as paths; `seen` are the types that were looked at already."""
    if inspect.isclass(thing):
        yield from of_class(thing, path, seen)
    elif inspect.isroutine(thing):
        yield from of_function(inspect.unwrap(thing), path, seen)
    elif inspect.ismodule(thing):
        for name, member in vars(thing).items():
            if is_public(name) and getattr(member, "__module__", "") == thing.__name__:
                yield from untyped(member, f"{path}.{name}", seen)
    elif typing.get_origin(thing) is None:
        yield from untyped(type(thing), path, seen)


def of_class(cls: type, path: str, seen: set[object]) -> Iterator[str]:
    """The fields and the public methods and properties that Loom itself gives a class."""
    if cls in seen:
        return
    seen.add(cls)
    for owner in reversed(cls.__mro__):
        if not owner.__module__.startswith((*OURS, __name__)):
            continue
        fields = typing.get_type_hints(owner) if dataclasses.is_dataclass(owner) or issubclass(owner, BaseModel) else {}
        for name in filter(is_public, fields.keys() & owner.__annotations__.keys()):
            yield from of_hint(fields[name], f"{path}.{name}", seen)
        for name, member in vars(owner).items():
            function = function_of(member)
            if function is not None and is_public(name):
                yield from of_function(function, f"{path}.{name}", seen)


def function_of(member: object) -> Callable[..., object] | None:
    """The function that a method, a property or the like calls."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, functools.cached_property):
        return member.func
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if inspect.isfunction(member) else None


def of_function(function: Callable[..., object], path: str, seen: set[object]) -> Iterator[str]:
    hints = typing.get_type_hints(function)
    assert "return" in hints, f"{path} does not say what it gives back"
    yield from of_hint(hints["return"], path, seen)


def of_hint(hint: object, path: str, seen: set[object]) -> Iterator[str]:
    """Look into containers, and into the records of Loom that are in them."""
    if hint is Any:
        yield path
    elif inspect.isclass(hint) and typing.get_origin(hint) is None:
        if hint.__module__.startswith(OURS):
            yield from of_class(hint, f"{path} -> {hint.__name__}", seen)
    elif typing.get_origin(hint) is not typing.Literal:
        for part in typing.get_args(hint):
            for each in part if isinstance(part, list) else [part]:
                yield from of_hint(each, path, seen)


def is_public(name: str) -> bool:
    return not name.startswith("_")
