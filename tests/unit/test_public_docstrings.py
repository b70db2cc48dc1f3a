"""What the public names say of themselves, in Google's form: arguments, what is given back, errors.

The rule, for the functions of `__all__` and for the methods and properties that Loom itself gives the classes there
(and `Loom.schedules`):

* `Args:` has every parameter but `self`, in the order of the signature, and no other.
* `Returns:` (of a generator `Yields:`) says what comes back, unless nothing does. Two kinds say it in their first line:
  a property, which is described as an attribute is; and a getter, a function of at most one argument whose docstring
  begins with "Give", "Whether" or "Say".
* `Raises:` has every error of Loom that the function's own body makes and raises.

The functions of expressions that `loom_dsl.functions` makes from texts have those texts and nothing else.
"""

import ast
import functools
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator

import pytest

import loom_client
import loom_dsl
from loom_client.start.schedules import Schedules
from loom_dsl import LoomError, UserError
from tests.unit.test_public_types import OURS, function_of, is_public

Function = Callable[..., object]
SECTION = re.compile(r"(?m)^(Args|Returns|Yields|Raises|Attributes):\n")
ENTRY = re.compile(r"(?m)^    (\w+): \S")
GETTER = re.compile(r"(Give|Whether|Say)\b")


def described() -> Iterator[tuple[str, object]]:
    """The public functions, methods and properties, by names such as `Job.result`."""
    for package in (loom_dsl, loom_client):
        for name in package.__all__:
            thing = getattr(package, name)
            if inspect.isclass(thing):
                yield from ((f"{name}.{key}", member) for key, member in members(thing))
            elif isinstance(thing, types.ModuleType):
                yield from ((f"{name}.{key}", each) for key, each in vars(thing).items() if is_of(thing, key, each))
            elif inspect.isfunction(thing):
                yield name, thing
    yield from ((f"Loom.schedules.{key}", member) for key, member in members(Schedules))


def members(cls: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that Loom gives a class; a function that is a field's default is neither."""
    for owner in reversed(cls.__mro__):  # what a class says anew counts
        if owner.__module__.startswith(OURS):
            for key, member in vars(owner).items():
                if is_public(key) and key not in inspect.get_annotations(owner) and function_of(member) is not None:
                    yield key, member


def is_of(module: types.ModuleType, name: str, member: object) -> bool:
    return is_public(name) and inspect.isfunction(member) and member.__module__ == module.__name__


def plain(member: object) -> Function:
    """The function that was written, under its decorators."""
    function = function_of(member)
    assert function is not None
    written: Function = inspect.unwrap(function)
    return written


IS_PROPERTY = (property, functools.cached_property)
FUNCTIONS = {name: plain(member) for name, member in described() if not isinstance(member, IS_PROPERTY)}
PROPERTIES = {name: plain(member) for name, member in described() if isinstance(member, IS_PROPERTY)}
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@each_function
def test_every_argument_is_described_and_no_other(function: Function) -> None:
    assert entries(function, "Args") == arguments(function)


@each_function
def test_what_is_given_back_is_described(function: Function) -> None:
    generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    found = {"Returns", "Yields"} & sections(function).keys()
    if inspect.signature(function).return_annotation is None:
        assert found == set()
    else:
        assert found == {"Yields" if generator else "Returns"} or (not found and is_getter(function))


@pytest.mark.parametrize("function", PROPERTIES.values(), ids=PROPERTIES)
def test_a_property_is_described(function: Function) -> None:
    assert re.match(r"\w.*\.", inspect.getdoc(function) or "")
    assert sections(function).keys() <= {"Raises"}


@pytest.mark.parametrize("function", [*FUNCTIONS.values(), *PROPERTIES.values()], ids=[*FUNCTIONS, *PROPERTIES])
def test_an_error_that_is_raised_is_described(function: Function) -> None:
    assert raised(function) - set(entries(function, "Raises")) == set()


def test_what_a_docstring_leaves_out_or_makes_up_is_found() -> None:
    assert (arguments(badly_described), entries(badly_described, "Args")) == (["size", "more"], ["more", "depth"])
    assert raised(badly_described) - set(entries(badly_described, "Raises")) == {"UserError"}


def badly_described(size: int, **more: str) -> None:
    """Raise an error.

    Args:
        more: Anything.
        depth: No argument.

    Raises:
        LoomError: The size is 0.
    """
    if size == 0:
        raise LoomError
    raise UserError(f"{size} and {more}")


def arguments(function: Function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def is_getter(function: Function) -> bool:
    return len(arguments(function)) <= 1 and GETTER.match(inspect.getdoc(function) or "") is not None


def sections(function: Function) -> dict[str, str]:
    """The parts of a docstring, by their heads."""
    _, *parts = SECTION.split(inspect.getdoc(function) or "")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def entries(function: Function, section: str) -> list[str]:
    """The names that a part of a docstring has, each with a text."""
    return ENTRY.findall(sections(function).get(section, ""))


def raised(function: Function) -> set[str]:
    """The errors of Loom that a function raises by their names."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    named = [error.func if isinstance(error, ast.Call) else error for error in found]
    names = {name.id for name in named if isinstance(name, ast.Name)}
    return {name for name in names if is_error(inspect.getmodule(function), name)}


def is_error(module: types.ModuleType | None, name: str) -> bool:
    found = getattr(module, name, None)
    return inspect.isclass(found) and issubclass(found, LoomError)
