"""Every error that Loom raises on purpose.

    LoomError
    ├── UserError                     a mistake that its author can correct (exit code 2)
    │   ├── DocumentError             a YAML document is not what it should be; carries diagnostics
    │   ├── ExpressionError           an expression does not compile, or fails when evaluated
    │   ├── GraphRefused              a graph that was written while the job ran is not valid, or not allowed
    │   ├── ToolDeclarationError      a function cannot be made into a tool
    │   ├── NotFoundError             no such job, approval, session or file
    │   │   ├── UnknownFunction       a graph names a function that the worker does not have
    │   │   └── UnknownToolError      an agent names a tool that the worker does not have
    │   │       └── MissingTools      the worker was started without the module; another one may have it
    │   ├── ConflictError             the id is taken, the session is busy, the decision was made
    │   │   ├── SessionBusy           another job writes in the session
    │   │   ├── JobExists             the job id stands for another job
    │   │   └── DecisionRefused       the decision does not count; carries the verdict
    │   └── ConfigurationError        a setting, an address or a credential is missing or wrong
    ├── ToolError                     told to the model as a tool result
    │   ├── ToolNotFound
    │   ├── ToolUnavailable
    │   ├── ToolValidationError
    │   ├── ToolTimeout
    │   ├── ApprovalStale             what was approved is about another state of things than there is now
    │   ├── UnreadableResult          the tool ran, and its result is neither text nor JSON
    │   └── OutcomeUnknown            it is not known whether the effect happened
    ├── FunctionFailed                a function that a graph's node calls raised something; tried again
    │   ├── FunctionArguments         what the node gives it does not fit its parameters
    │   └── ResultTooLarge            it returned more than a result may hold
    ├── StepDied                      the process in which a step's users' code ran has died; tried again
    │   └── StepKillsWorker           it dies each time, so the step waits for a person
    ├── PermissionDenied              told to the model as a tool result
    ├── ModelError
    │   ├── ModelRateLimit            carries retry_after
    │   ├── ContextLengthExceeded
    │   ├── ModelUnavailable          the provider cannot be reached, or answers 5xx
    │   ├── ModelProtocolError        the provider's answer cannot be understood
    │   └── ModelRequestRefused       the provider refuses the request for good (not retryable)
    │       └── ModelAccessRefused    the key, the model's name or the account is wrong: halts the step
    ├── Aborted                       somebody ended the job
    ├── LimitReached                  a limit of the run ended it
    ├── PlanError                     a plan does what the engine cannot carry
    ├── IllegalTransition             a run's state cannot follow the one it has (a fault in Loom)
    └── StoreError
        ├── StoreLocked
        ├── StoreUnreachable      the database server that it is on does not answer
        ├── StoreLost             its file was deleted or replaced while it was open
        ├── StoreReadOnly
        ├── StoreTooNew
        ├── StoreTooOld
        ├── NotAStore
        ├── StoreMissing
        ├── BlobMissing
        ├── ApprovalUnwritten
        └── WrongStore            the worker has another store than the job

A class's docstring is its default message. `code` is stable: it is the type of the Temporal
ApplicationError, the code of a tool result and the word that `catch:` matches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

# A finding in a document: what is wrong, where, and what to do.


Severity = Literal["error", "warning", "note"]
"""How bad a finding is: an error keeps a document from being used, a warning does not."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in a document.

    Attributes:
        code: Stable code, such as ``L002``.
        message: What is wrong.
        file: Name of the document as the user gave it.
        line: 1-based line, or None when the finding has no place.
        column: 1-based column, or None.
        fix: What to do about it.
        severity: Whether the document can be used all the same.
        unset: The environment's variable that is not set, where only that is wrong, and not the document.
    """

    code: str
    message: str
    file: str = ""
    line: int | None = None
    column: int | None = None
    fix: str = ""
    severity: Severity = "error"
    unset: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part not in ("", None))
        code = self.code if self.severity == "error" else f"{self.code} {self.severity}:"
        text = f"{place}: {code} {self.message}" if place else f"{code} {self.message}"
        return f"{text} ({self.fix})" if self.fix else text


class LoomError(Exception):
    """Something went wrong in Loom."""

    code: ClassVar[str] = "loom_error"
    retryable: ClassVar[bool] = False
    """Whether the engine should try the same activity again."""
    recoverable: ClassVar[bool] = False
    """Whether a model may try the same call again in another form (mission C2)."""
    exit_code: ClassVar[int] = 1
    outage: ClassVar[bool] = False
    """Whether it is about a party that is away for a time: time counts then, not tries."""
    halts: ClassVar[bool] = False
    """Whether a person can put it right, so that the step waits for that instead of failing the job."""
    action: ClassVar[str] = ""
    """What the person is to do, where it halts."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (self.__doc__ or self.code).strip().splitlines()[0]
        super().__init__(self.message)


class UserError(LoomError):
    """The request cannot be carried out as it stands."""

    code = "user_error"
    exit_code = 2


class DocumentError(UserError):
    """The document is not valid."""

    code = "invalid_document"

    def __init__(self, diagnostics: list[Diagnostic] | str) -> None:
        found = [Diagnostic("L001", diagnostics)] if isinstance(diagnostics, str) else list(diagnostics)
        self.diagnostics = found
        super().__init__("\n".join(str(d) for d in found))


class ExpressionError(UserError):
    """The expression is not valid."""

    code = "expression_error"

    def __init__(self, message: str, column: int | None = None) -> None:
        self.column = column
        super().__init__(message)


class GraphRefused(UserError):
    """A graph that was written while the job ran is not valid, or does what it may not."""

    code = "graph_refused"


class ToolDeclarationError(UserError):
    """The function cannot be used as a tool."""

    code = "tool_declaration"


class NotFoundError(UserError):
    """There is no such thing."""

    code = "not_found"


class UnknownToolError(NotFoundError):
    """The worker has no such tool."""

    code = "unknown_tool"


class UnknownFunction(NotFoundError):
    """The worker has no such function."""

    code = "unknown_function"


class MissingTools(UnknownToolError):
    """This worker was started without a module of the agent's tools."""

    code = "missing_tools"
    retryable = True


class ConflictError(UserError):
    """The request conflicts with what is already there."""

    code = "conflict"


class DecisionRefused(ConflictError):
    """The job does not take the decision.

    Attributes:
        verdict: Why, in a word: ``already_decided``, ``expired``, ``not_allowed``, ``wrong_digest``, ``invalid``, ….
    """

    code = "decision_refused"

    def __init__(self, message: str | None = None, verdict: str = "invalid") -> None:
        self.verdict = verdict
        super().__init__(message)


class SessionBusy(ConflictError):
    """Another job writes in this session."""

    code = "session_busy"

    def __init__(self, message: str | None = None, holder: str = "") -> None:
        self.holder = holder
        super().__init__(message)


class JobExists(ConflictError):
    """The job id stands for another job."""

    code = "job_exists"

    def __init__(self, message: str | None = None, differs: tuple[str, ...] = ()) -> None:
        self.differs = differs
        super().__init__(message)


class ConfigurationError(UserError):
    """A setting is missing or wrong."""

    code = "configuration"


class ToolError(LoomError):
    """The tool failed."""

    code = "tool_error"


class ToolNotFound(ToolError):
    """There is no tool of that name."""

    code = "tool_not_found"


class ToolUnavailable(ToolError):
    """The tool is not available now."""

    code = "tool_unavailable"


class ToolValidationError(ToolError):
    """The arguments do not fit the tool's schema."""

    code = "validation_error"
    recoverable = True


class ToolTimeout(ToolError):
    """The tool took longer than its timeout."""

    code = "timeout"
    recoverable = True


class ApprovalStale(ToolError):
    """What the call changes was changed after its approver was shown it; look again, and ask anew."""

    code = "approval_stale"
    recoverable = True


class UnreadableResult(ToolError):
    """The tool ran, and what it returned is neither text nor JSON."""

    code = "unreadable_result"


class OutcomeUnknown(ToolError):
    """It is not known whether the effect happened: a worker stopped while the tool ran."""

    code = "outcome_unknown"


class FunctionFailed(LoomError):
    """A function that a node calls failed."""

    code = "function_failed"
    retryable = True


class FunctionArguments(FunctionFailed):
    """What a node gives a function does not fit its parameters."""

    code = "function_arguments"
    retryable = False


class ResultTooLarge(FunctionFailed):
    """A function returned more than a result may hold."""

    code = "result_too_large"
    retryable = False


class StepDied(LoomError):
    """The process in which users' code of this step ran has died."""

    code = "step_died"
    retryable = True


class StepKillsWorker(StepDied):
    """Each process that runs this step dies."""

    code = "kills_worker"
    retryable = False
    halts = True
    action = "look at the tool or function that the message names, mend it, and restart the workers"


class PermissionDenied(LoomError):
    """The policy does not allow this call."""

    code = "permission_denied"


class ModelError(LoomError):
    """The model call failed."""

    code = "model_error"
    retryable = True


class ModelRateLimit(ModelError):
    """The provider asks to slow down."""

    code = "rate_limit"
    outage = True
    action = "ask less often, or have the account's limits raised"

    def __init__(self, message: str | None = None, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ContextLengthExceeded(ModelError):
    """The conversation is longer than the model's context window."""

    code = "context_length"
    retryable = False


class ModelUnavailable(ModelError):
    """The model's endpoint cannot be reached or is failing."""

    code = "model_unavailable"
    outage = True
    action = "look at the model's endpoint and at the network"

    def __init__(self, message: str | None = None, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class ModelProtocolError(ModelError):
    """The model's answer cannot be understood."""

    code = "model_protocol"


class ModelRequestRefused(ModelError):
    """The provider refuses the request as it is."""

    code = "model_refused"
    retryable = False


class ModelAccessRefused(ModelRequestRefused):
    """The model cannot be asked with this key, name, address or quota; a person can put that right."""

    code = "model_access"
    halts = True
    action = "put right the key, the model's name, its address or the account, and restart workers that have a new one"


class Aborted(LoomError):
    """The job was aborted."""

    code = "aborted"


class LimitReached(LoomError):
    """A limit of the run was reached."""

    code = "limit_reached"


class PlanError(LoomError):
    """The plan asks for something that the engine cannot carry."""

    code = "plan_error"


class IllegalTransition(LoomError):
    """The state of a run cannot change in this way."""

    code = "illegal_transition"


class StoreError(LoomError):
    """The store failed.

    Attributes:
        passes: Whether the same write may succeed later, by itself or once somebody has mended what is wrong.
    """

    code = "store_error"
    retryable = True
    passes: bool = True


class StoreLocked(StoreError):
    """Another process holds the store's write lock for too long."""

    code = "store_locked"


class StoreUnreachable(StoreError):
    """The database server that the store is on does not answer, or does not let us in."""

    code = "store_unreachable"
    exit_code = 2


class StoreLost(StoreError):
    """The store's file was deleted or replaced while this process had it open."""

    code = "store_lost"
    passes = False
    exit_code = 2


class StoreReadOnly(StoreError):
    """The store's file cannot be written."""

    code = "store_read_only"
    exit_code = 2


class StoreTooNew(StoreError):
    """The store was written by a newer release of Loom. Upgrade Loom, or point LOOM_STORE at another file."""

    code = "store_too_new"
    passes = False
    retryable = False
    exit_code = 2


class StoreTooOld(StoreError):
    """The store is of a release that this one cannot bring up to date. Let its jobs end there, then begin a new one."""

    code = "store_too_old"
    passes = False
    retryable = False
    exit_code = 2


class NotAStore(StoreError):
    """What is at that place is no store, and cannot become one: a directory, or a file of another kind."""

    code = "not_a_store"
    passes = False
    retryable = False
    exit_code = 2


class StoreMissing(StoreError):
    """There is no store at that place."""

    code = "store_missing"
    passes = False
    retryable = False
    exit_code = 2


class BlobMissing(StoreError):
    """The store does not hold that content."""

    code = "blob_missing"
    passes = False


class ApprovalUnwritten(StoreError):
    """The approval of a call is not in this store, as after an older one was put in its place; have it asked anew."""

    code = "approval_unwritten"
    passes = False


class WrongStore(StoreError):
    """This worker has another store than the job was started with."""

    code = "wrong_store"
    passes = False


class ServerAway(LoomError):
    """The Temporal server cannot be reached, or did not answer in time."""

    code = "server_away"
    retryable = True
    outage = True
    exit_code = 4


class JobHalted(LoomError):
    """The job waits for a person, and nothing of it goes on by itself."""

    code = "job_halted"
    exit_code = 3

    def __init__(self, message: str | None = None, steps: Sequence[Mapping[str, Any]] = ()) -> None:
        self.steps = tuple(steps)
        super().__init__(message)
