"""Rules of an agent's permissions that name no tool of its: most often a slip, and then they hold for nothing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from activities.builtin import BUILTIN_TOOLS
from loom_dsl.agent import Agent, call_name
from loom_dsl.diagnostic import Diagnostic
from loom_dsl.document import Document
from loom_dsl.permission_rules import parse_rule
from loom_dsl.validation import suggest

RULE_WITHOUT_TOOL = "L152"
_DECISIONS: tuple[Literal["allow", "ask", "deny"], ...] = ("allow", "ask", "deny")


def rule_findings(agent: Agent, document: Document) -> Iterator[Diagnostic]:
    """Find the rules that name neither a tool of the agent nor one of Loom's own.

    A rule that denies what is nearly the name of one of the agent's tools is an error: that tool is not denied.

    Args:
        agent: The agent.
        document: Where it was read from, for the places.
    """
    own = {name for reference in agent.tools for name in (reference, call_name(reference))}
    known = own | {"*"} | {made.name for made in BUILTIN_TOOLS}
    for decision in _DECISIONS:
        for index, text in enumerate(getattr(agent.permissions, decision)):
            tool = parse_rule(text).tool
            if tool in known or tool.startswith("mcp__"):
                continue
            near = suggest(tool, own)
            message = f"the rule `{decision}: {text}` holds for nothing: agent {agent.name} has no tool `{tool}`"
            found = Diagnostic(RULE_WITHOUT_TOOL, message, fix=near, severity="warning")
            if decision == "deny" and near:
                found = replace(found, severity="error")
            yield _placed(found, document, decision, index, text)


def _placed(found: Diagnostic, document: Document, decision: str, index: int, text: str) -> Diagnostic:
    written = document.data.get("permissions")
    flat = isinstance(written, dict) and text in written
    line, column = document.position(("permissions", text) if flat else ("permissions", decision, index), key=flat)
    return replace(found, file=document.source, line=line, column=column)
