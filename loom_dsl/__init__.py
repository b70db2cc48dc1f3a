"""The pure core of Loom: documents, plans, the machine. No I/O, no clock, no randomness.

What a program of one's own uses is here: ``from loom_dsl import Agent, GraphBuilder, tool``. The modules below are
Loom's own rooms and may change. It imports nothing of Loom; every other package may import it. Each name is loaded
when it is first used, so that importing one of them does not bring the others, such as the reader of YAML.
"""

from typing import TYPE_CHECKING

from loom_dsl.lazy import lazy_names

if TYPE_CHECKING:
    from loom_dsl.agent.definition import Agent, Limits, load_agent
    from loom_dsl.agent.run import GraphResult, RunInput, RunResult
    from loom_dsl.agent.turn import ExecutionContext, TurnState
    from loom_dsl.authoring.sarif import sarif
    from loom_dsl.errors import (
        Aborted,
        ApprovalStale,
        ConfigurationError,
        ConflictError,
        DecisionRefused,
        Diagnostic,
        DocumentError,
        ExpressionError,
        GraphRefused,
        JobExists,
        LimitReached,
        LoomError,
        ModelError,
        NotFoundError,
        OutcomeUnknown,
        PermissionDenied,
        PlanError,
        ServerAway,
        SessionBusy,
        StoreError,
        ToolDeclarationError,
        ToolError,
        ToolNotFound,
        ToolTimeout,
        ToolUnavailable,
        ToolValidationError,
        UnknownFunction,
        UnknownToolError,
        UnreadableResult,
        UserError,
    )
    from loom_dsl.expr.template import escaped
    from loom_dsl.fields import Retry
    from loom_dsl.graph.builder import GraphBuilder, functions
    from loom_dsl.graph.builder.expressions import Expr, R, event, index, item, nodes, run
    from loom_dsl.graph.compiler import check_text, compile_graph
    from loom_dsl.graph.dump import to_yaml
    from loom_dsl.graph.graph import Graph
    from loom_dsl.graph.plan import Plan
    from loom_dsl.observe.events import Event
    from loom_dsl.permissions.decide import Verdict, decide, explain
    from loom_dsl.permissions.function import PermissionRequest
    from loom_dsl.permissions.policy import Permissions
    from loom_dsl.permissions.traits import ToolTraits
    from loom_dsl.tools.context import Image, Preview, Reconciliation, ToolContext, ToolOutput
    from loom_dsl.tools.hooks import HookAnswer, HookCall
    from loom_dsl.tools.tool import Arguments, Tool, tool

__all__ = [
    "Aborted",
    "Agent",
    "ApprovalStale",
    "Arguments",
    "ConfigurationError",
    "ConflictError",
    "DecisionRefused",
    "Diagnostic",
    "DocumentError",
    "Event",
    "ExecutionContext",
    "Expr",
    "ExpressionError",
    "Graph",
    "GraphBuilder",
    "GraphRefused",
    "GraphResult",
    "HookAnswer",
    "HookCall",
    "Image",
    "JobExists",
    "LimitReached",
    "Limits",
    "LoomError",
    "ModelError",
    "NotFoundError",
    "OutcomeUnknown",
    "PermissionDenied",
    "PermissionRequest",
    "Permissions",
    "Plan",
    "PlanError",
    "Preview",
    "R",
    "Reconciliation",
    "Retry",
    "RunInput",
    "RunResult",
    "ServerAway",
    "SessionBusy",
    "StoreError",
    "Tool",
    "ToolContext",
    "ToolDeclarationError",
    "ToolError",
    "ToolNotFound",
    "ToolOutput",
    "ToolTimeout",
    "ToolTraits",
    "ToolUnavailable",
    "ToolValidationError",
    "TurnState",
    "UnknownFunction",
    "UnknownToolError",
    "UnreadableResult",
    "UserError",
    "Verdict",
    "check_text",
    "compile_graph",
    "decide",
    "escaped",
    "event",
    "explain",
    "functions",
    "index",
    "item",
    "load_agent",
    "nodes",
    "run",
    "sarif",
    "to_yaml",
    "tool",
]

if not TYPE_CHECKING:  # a type checker would take every name for one that there is
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "loom_dsl.agent.definition": "Agent Limits load_agent",
            "loom_dsl.agent.run": "GraphResult RunInput RunResult",
            "loom_dsl.agent.turn": "ExecutionContext TurnState",
            "loom_dsl.authoring.sarif": "sarif",
            "loom_dsl.errors": (
                "Aborted ApprovalStale ConfigurationError ConflictError DecisionRefused Diagnostic DocumentError "
                "ExpressionError GraphRefused JobExists LimitReached LoomError ModelError NotFoundError "
                "OutcomeUnknown PermissionDenied PlanError ServerAway SessionBusy StoreError ToolDeclarationError "
                "ToolError ToolNotFound ToolTimeout ToolUnavailable ToolValidationError UnknownFunction "
                "UnknownToolError UnreadableResult UserError"
            ),
            "loom_dsl.expr.template": "escaped",
            "loom_dsl.fields": "Retry",
            "loom_dsl.graph.builder": "GraphBuilder functions",
            "loom_dsl.graph.builder.expressions": "Expr R event index item nodes run",
            "loom_dsl.graph.compiler": "check_text compile_graph",
            "loom_dsl.graph.dump": "to_yaml",
            "loom_dsl.graph.graph": "Graph",
            "loom_dsl.graph.plan": "Plan",
            "loom_dsl.observe.events": "Event",
            "loom_dsl.permissions.decide": "Verdict decide explain",
            "loom_dsl.permissions.function": "PermissionRequest",
            "loom_dsl.permissions.policy": "Permissions",
            "loom_dsl.permissions.traits": "ToolTraits",
            "loom_dsl.tools.context": "Image Preview Reconciliation ToolContext ToolOutput",
            "loom_dsl.tools.hooks": "HookAnswer HookCall",
            "loom_dsl.tools.tool": "Arguments Tool tool",
        },
    )
