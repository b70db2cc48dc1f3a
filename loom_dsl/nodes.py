"""The kinds of nodes. A node's kind is the key that it has; one without such a key only chooses the way."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag

from loom_dsl.nodes_flow import Approval, Branch, Cancel, End, Event, Fail, Join, Race, Recurse, Set, Timer
from loom_dsl.nodes_work import Activity, AgentNode, Llm, Loop, Map, Subgraph, Tool
from loom_dsl.parts import Node

NODE_KINDS: dict[str, type[Node]] = {
    kind.kind: kind
    for kind in (
        Activity,
        Tool,
        AgentNode,
        Llm,
        Approval,
        Event,
        Timer,
        Join,
        Map,
        Loop,
        Subgraph,
        Race,
        Set,
        Cancel,
        Recurse,
        End,
        Fail,
    )
}


def kind_of(value: Any) -> str:
    """The kind of a node, or of the mapping that a document has for it."""
    if isinstance(value, Node):
        return value.kind
    kinds = [kind for kind in NODE_KINDS if isinstance(value, dict) and kind in value]
    return kinds[0] if kinds else Branch.kind


def _one_kind(value: Any) -> Any:
    kinds = [kind for kind in NODE_KINDS if isinstance(value, dict) and kind in value]
    if len(kinds) > 1:
        raise ValueError(f"a node is one thing, and this one is {' and '.join(f'`{kind}`' for kind in kinds)}")
    return value


AnyNode = Annotated[
    Annotated[Activity, Tag("activity")]
    | Annotated[Tool, Tag("tool")]
    | Annotated[AgentNode, Tag("agent")]
    | Annotated[Llm, Tag("llm")]
    | Annotated[Approval, Tag("approval")]
    | Annotated[Event, Tag("event")]
    | Annotated[Timer, Tag("timer")]
    | Annotated[Join, Tag("join")]
    | Annotated[Map, Tag("map")]
    | Annotated[Loop, Tag("loop")]
    | Annotated[Subgraph, Tag("graph")]
    | Annotated[Race, Tag("race")]
    | Annotated[Set, Tag("set")]
    | Annotated[Cancel, Tag("cancel")]
    | Annotated[Recurse, Tag("recurse")]
    | Annotated[End, Tag("end")]
    | Annotated[Fail, Tag("fail")]
    | Annotated[Branch, Tag("branch")],
    Discriminator(kind_of),
    BeforeValidator(_one_kind),
]
