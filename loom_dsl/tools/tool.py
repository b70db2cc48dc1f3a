"""What a tool is: a function, what it asks for, and what it promises about its effects."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack, overload

from pydantic import BaseModel, JsonValue, ValidationError

from loom_dsl.errors import ToolDeclarationError
from loom_dsl.fields import Retry
from loom_dsl.tools.arguments import check_arguments, parse_object
from loom_dsl.tools.context import Preview, Reconciliation, ToolContext
from loom_dsl.tools.risk import Risk
from loom_dsl.tools.schema import context_parameters, declare, parse_docstring, place, schema_of
from loom_dsl.tools.secret_references import no_place, with_advice

# A tool that is written as a class: its attributes are the promises, its method `run` is the work.


def read_class(given: type, options: Iterable[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Make one object of a class, and give its `run` as a function with what its attributes say.

    Args:
        given: The class. It is made without arguments, once in each process.
        options: Names of the attributes that say something about the tool.

    Returns:
        The function, and the options by name. The name is the class's own, in small letters with `_`, unless said.

    Raises:
        ToolDeclarationError: It has no `run`, or cannot be made without arguments.
    """
    where = f"the class {given.__module__}.{given.__qualname__}"
    run = inspect.getattr_static(given, "run", None)
    if not callable(getattr(run, "__func__", run)):
        raise ToolDeclarationError(f"{where} has no method `run`; a tool that is a class does its work there")
    try:
        made = given()
    except TypeError as error:
        raise ToolDeclarationError(f"{where} cannot be made without arguments ({error}); give them defaults") from error
    found = {name: getattr(made, name) for name in options if hasattr(made, name)}
    found.setdefault("name", re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", given.__name__).lower())
    described = given.__dict__.get("__doc__")
    if described and "description" not in found:
        found["description"] = inspect.cleandoc(described)
    return _as_function(made.run, given), found


def _as_function(run: Callable[..., Any], given: type) -> Callable[..., Any]:
    """A function that stands at the place of the class, so that a worker finds it by name as it finds any other."""

    def call_sync(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await run(*args, **kwargs)

    call: Any = call_async if inspect.iscoroutinefunction(run) else call_sync
    call.__wrapped__ = run
    call.__annotations__ = getattr(run, "__annotations__", {})
    call.__doc__ = run.__doc__
    call.__name__, call.__qualname__, call.__module__ = given.__name__, given.__qualname__, given.__module__
    function: Callable[..., Any] = call
    return function


# The Python modules that tools and functions are in.


def is_of_python(module: str) -> bool:
    """Whether a module is one of Python's own, of which no worker should be asked to offer the functions."""
    return module.partition(".")[0] in sys.stdlib_module_names


def advice_on(module: str, otherwise: str) -> str:
    """Say what to do about a module that nobody listed.

    Args:
        module: Its name.
        otherwise: What to do when it may be the user's own.
    """
    if not is_of_python(module):
        return otherwise
    return f"{module!r} is one of Python's own modules, which offer no tools; name a function of a module of yours"


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DERIVED: Any = None
"""Stands for a promise that follows from `read_only` when it is not given."""


Arguments = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that a model may call, with its promises.

    Attributes:
        name: What the model calls it.
        description: What the model is told about it.
        parameters: JSON schema of the arguments object.
        function: Called with keyword arguments after validation; a sync one runs in a thread.
        arguments: The pydantic model that validates; None: `parameters` does.
        read_only: It changes nothing.
        concurrency_safe: Consecutive calls may run at the same time. Default: `read_only`.
        concurrency_key: Names what a call touches; only calls with the same key wait for each other. None: all do, and
            so do calls whose key is not told within three seconds.
        idempotent: Running it twice with the same arguments is the same as once. Default: `read_only`.
        quick: It always ends well under half a second and only reads, so it may run as a local activity.
        timeout: Seconds that one call may take, with all attempts of `retry`.
        retry: How often its function is called while it raises, and how soon: a number of attempts, or a `Retry`. Only
            for what is `idempotent`. What it raises as one of Loom's errors, such as `ToolError`, is told at once.
        risk: Default: low when it only reads, else medium.
        summarise: One line about a call, for an approver.
        preview: What a call would do, such as a diff, for an approver; as a `Preview` with the state that it is about.
        check: Looks at a call before anybody is asked about it, and raises why it is not to run.
        reconcile: Finds out whether an earlier attempt took effect.
        compensate: Takes an effect back, given the arguments and the result.
        is_available: Whether it can be called now. What does not answer within three seconds cannot.
        requires_runtime: It needs the run's runtime data (`context.runtime`), and is not available in a run without.
        path_arguments: Arguments that hold paths relative to the working directory; rules match on them.
        recursive: Its paths are directories of which it touches the whole tree.
        command_argument: Argument that holds a shell's command line; rules match on its commands.
        address_argument: Argument that holds the address of an HTTP request; rules match on its host.
        secrets: Parameters that take secrets by reference: a call has `${secret:NAME}` there, and the function,
            `reconcile` and `compensate` get the value. Everybody else sees the reference.
        untrusted: What it gives comes from outside: after it was read, what the user did not name asks. Default: it has
            an `address_argument`.
        context_parameters: Parameters of the function that get the `ToolContext`.
        reference: Where a worker has it from, as `module:name`; empty for Loom's own tools and those of MCP servers.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]
    function: Callable[..., object]
    arguments: type[BaseModel] | None = None
    read_only: bool = False
    concurrency_safe: bool = _DERIVED
    concurrency_key: Callable[[Arguments], str | None] | None = None
    idempotent: bool = _DERIVED
    quick: bool = False
    timeout: float = 120.0
    retry: Retry | None = None
    risk: Risk = _DERIVED
    summarise: Callable[[Arguments], str] | None = None
    preview: Callable[[Arguments, ToolContext], str | Preview] | None = None
    check: Callable[[Arguments], None] | None = None
    reconcile: Callable[[Arguments, ToolContext], Reconciliation] | None = None
    compensate: Callable[[Arguments, JsonValue, ToolContext], object] | None = None
    is_available: Callable[[], bool] | None = None
    requires_runtime: bool = False
    path_arguments: tuple[str, ...] = ()
    recursive: bool = False
    command_argument: str = ""
    address_argument: str = ""
    secrets: Sequence[str] = ()
    untrusted: bool = _DERIVED
    context_parameters: tuple[str, ...] = field(default=(), repr=False)
    reference: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        derived = {
            "concurrency_safe": self.read_only,
            "idempotent": self.read_only,
            "risk": Risk.LOW if self.read_only else Risk.MEDIUM,
            "untrusted": bool(self.address_argument),
        }
        for name, value in derived.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.retry is not None:
            object.__setattr__(self, "retry", _retry(self.name, self.retry))
        self._check()
        self._check_secrets()

    def _check(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ToolDeclarationError(
                f"{self.name!r} is not a name for a tool; use 1 to 64 letters, digits, '_' and '-', "
                f"for example tool(name='look_up')({place(self.function)})"
            )
        if not self.timeout > 0:
            raise ToolDeclarationError(f"tool {self.name}: timeout is {self.timeout}; give seconds greater than 0")
        if self.retry is not None and (self.quick or not self.idempotent):
            why = (
                "quick, and has no time to wait" if self.quick else "not idempotent, so what it does would happen twice"
            )
            raise ToolDeclarationError(
                f"tool {self.name} is declared with retry, but it is {why}; leave one of them out"
            )
        if self.quick and not self.read_only:
            raise ToolDeclarationError(
                f"tool {self.name} is declared quick but not read_only; only a tool that changes nothing may be quick"
            )
        schema: dict[str, Any] = self.parameters
        known = schema.get("properties", {})
        named = [("path_arguments", name) for name in self.path_arguments]
        named += [("secrets", name) for name in (() if isinstance(self.secrets, str) else self.secrets)]
        named += [("command_argument", self.command_argument), ("address_argument", self.address_argument)]
        for declared, name in named:
            if name and name not in known:
                raise ToolDeclarationError(
                    f"tool {self.name}: {declared} names {name!r}, which is not a parameter; it has {sorted(known)}"
                )

    def _check_secrets(self) -> None:
        if isinstance(self.secrets, str):
            raise ToolDeclarationError(f"tool {self.name}: secrets is a text; write a list: secrets=[{self.secrets!r}]")
        judged = {*self.path_arguments, self.command_argument, self.address_argument}
        for name in self.secrets:
            # What rules and approvers judge there would not be what the function gets.
            why = "rules match on it" if name in judged else no_place(self.parameters, name)
            if why:
                raise ToolDeclarationError(
                    f"tool {self.name}: secrets names {name!r}, where no ${{secret:NAME}} can stand: {why}; "
                    "give the secret a parameter of its own, of the type str and without constraints"
                )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, so that a decorated function stays testable as one."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited rather than run in a thread."""
        return inspect.iscoroutinefunction(self.function)

    def bind(
        self, arguments: Mapping[str, Any], context: ToolContext, secrets: Mapping[str, str] | None = None
    ) -> dict[str, object]:
        """Turn validated JSON arguments into the keyword arguments of the function.

        Args:
            arguments: With references in the place of secrets.
            context: For the parameters that get it.
            secrets: What the function gets in their place, by parameter.

        Returns:
            Every parameter's value, by name.

        Raises:
            ToolValidationError: The arguments do not fit (they were not validated, or the tool has changed).
        """
        keywords = check_arguments(self.name, self.arguments, self.parameters, dict(arguments)).keywords
        return keywords | dict(secrets or {}) | dict.fromkeys(self.context_parameters, context)


def _retry(name: str, given: object) -> Retry:
    try:
        return Retry.model_validate({"attempts": given} if type(given) is int else given, from_attributes=True)
    except ValidationError:
        raise ToolDeclarationError(
            f"tool {name}: retry is {given!r}; give a number of attempts from 1 to 1000, "
            "or Retry(attempts=3, initial=1, backoff=2, longest=60)"
        ) from None


def validate_arguments(tool: Tool, raw: str | Mapping[str, Any]) -> Arguments:
    """Check what a model sent as arguments and write it in its full, canonical form.

    Types are JSON types, taken strictly: "5" is not a number. An integer will do where a number is asked for. Text
    around the object is repaired only when one reading is possible: nothing at all or `null` for no arguments, a code
    fence, an object inside a JSON string, a comma behind the last item.

    Args:
        tool: The tool that is called.
        raw: JSON text from the model, or an object that was edited by an approver.

    Returns:
        A JSON object with every default filled in, so that what is approved is what runs.

    Raises:
        ToolValidationError: Says which argument is wrong, what is expected and what came.
    """
    return check_arguments(tool.name, tool.arguments, tool.parameters, parse_object(tool.name, raw)).canonical


class ToolOptions(TypedDict, total=False):
    """What `tool` may be told about a function; the meaning is that of `Tool`'s attributes."""

    name: str
    description: str
    arguments: type[BaseModel]
    parameters: dict[str, Any]
    read_only: bool
    concurrency_safe: bool
    concurrency_key: Callable[[Arguments], str | None]
    idempotent: bool
    quick: bool
    timeout: float
    retry: Retry | int
    risk: Risk
    summarise: Callable[[Arguments], str]
    preview: Callable[[Arguments, ToolContext], str | Preview]
    check: Callable[[Arguments], None]
    reconcile: Callable[[Arguments, ToolContext], Reconciliation]
    compensate: Callable[[Arguments, JsonValue, ToolContext], object]
    is_available: Callable[[], bool]
    requires_runtime: bool
    path_arguments: tuple[str, ...]
    recursive: bool
    command_argument: str
    address_argument: str
    secrets: Sequence[str]
    untrusted: bool


@overload
def tool(function: "Callable[..., object] | Tool", /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(function: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | Tool | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of an annotated function or of a class: as a decorator, with or without options, or called on one.

    The schema comes from the signature, the descriptions from the docstring (Google style, `Args:`). With `arguments`,
    a pydantic model, or `parameters`, a JSON schema, it comes from there, and the function gets the values by name.
    A class says its options as attributes and works in its method `run`.

    Args:
        function: The function or the class; a tool is given back as it is. None: what the decorator stands on.
        options: Attributes of `Tool`, by name, that say what it promises.

    Returns:
        The tool; without a function, a decorator that gives it.

    Raises:
        ToolDeclarationError: A parameter has no annotation or one that JSON cannot carry; names the function, the
            parameter, the file and the line. Or the options contradict each other, or are for a tool already made.
    """
    if function is None:
        return lambda given: _build(given, options)
    if isinstance(function, Tool):
        if options:
            raise ToolDeclarationError(f"{function.name} is a tool already; give the options where it is declared")
        return function
    return _build(function, options)


def _build(function: Callable[..., Any], options: ToolOptions) -> Tool:
    given: dict[str, Any] = dict(options)
    if inspect.isclass(function):
        function, said = read_class(function, ToolOptions.__annotations__)
        given = {**said, **given}
    model, schema = given.pop("arguments", None), given.pop("parameters", None)
    if schema is not None:
        return _with_schema(function, model, schema, given)
    declared = declare(function, ToolContext, model)
    text = parse_docstring(inspect.getdoc(function) or "").description
    return Tool(
        name=given.pop("name", None) or getattr(function, "__name__", ""),
        description=given.pop("description", None) or text,
        parameters=with_advice(schema_of(declared.model), given.get("secrets", ())),
        function=function,
        arguments=declared.model,
        context_parameters=declared.context_parameters,
        **given,
    )


def _with_schema(function: Callable[..., Any], model: object, schema: Mapping[str, Any], given: dict[str, Any]) -> Tool:
    if model is not None or schema.get("type") != "object":
        raise ToolDeclarationError(
            f"{place(function)}: `parameters` is the JSON schema of an object, and takes the place of `arguments`"
        )
    described = parse_docstring(inspect.getdoc(function) or "").description
    return Tool(
        name=given.pop("name", None) or getattr(function, "__name__", ""),
        description=given.pop("description", None) or described,
        parameters=with_advice({"properties": {}, **schema}, given.get("secrets", ())),
        function=function,
        context_parameters=context_parameters(function, ToolContext),
        **given,
    )
