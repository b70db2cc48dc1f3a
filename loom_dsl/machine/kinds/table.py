"""Who handles each kind of node. A new kind is a `NodeHandler` in a module of its own, and a row here."""

from collections.abc import Mapping
from typing import Any

from loom_dsl.machine.kinds.approvals import ApprovalHandler
from loom_dsl.machine.kinds.control import (
    BranchHandler,
    CancelHandler,
    EndHandler,
    FailHandler,
    RecurseHandler,
    SetHandler,
)
from loom_dsl.machine.kinds.joins import JoinHandler
from loom_dsl.machine.kinds.maps import MapHandler
from loom_dsl.machine.kinds.subgraphs import LoopHandler, SubgraphHandler, ToolHandler
from loom_dsl.machine.kinds.waits import EventHandler, RaceHandler, TimerHandler
from loom_dsl.machine.kinds.work import ActivityHandler, AgentHandler, LlmHandler
from loom_dsl.machine.tokens.moves import NodeHandler

HANDLERS: Mapping[str, NodeHandler[Any]] = {
    "branch": BranchHandler(),
    "activity": ActivityHandler(),
    "tool": ToolHandler(),
    "agent": AgentHandler(),
    "llm": LlmHandler(),
    "approval": ApprovalHandler(),
    "event": EventHandler(),
    "timer": TimerHandler(),
    "join": JoinHandler(),
    "map": MapHandler(),
    "loop": LoopHandler(),
    "graph": SubgraphHandler(),
    "race": RaceHandler(),
    "set": SetHandler(),
    "cancel": CancelHandler(),
    "recurse": RecurseHandler(),
    "end": EndHandler(),
    "fail": FailHandler(),
}
"""By the kind's name in documents."""
