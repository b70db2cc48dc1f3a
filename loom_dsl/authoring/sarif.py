"""Findings as SARIF 2.1.0, which editors and code hosts read."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from pydantic import JsonValue

from loom_dsl.errors import Diagnostic
from loom_dsl.graph.checks.codes import CODES, severity_of

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Iterable[Diagnostic]) -> dict[str, JsonValue]:
    """Give findings as one SARIF log with one run: rules by code, results in the order given.

    Lines and columns count from 1, as in SARIF. A finding without a file has no location. What to do about a finding
    stands in its message, for whoever shows that, and alone in its property `fix`, for programs.

    Args:
        findings: Findings of any documents, such as those of `check_text`.

    Returns:
        The log, as JSON data.
    """
    told = list(findings)
    codes = sorted({finding.code for finding in told})
    number = {code: index for index, code in enumerate(codes)}
    driver = {"name": "loom", "rules": [_rule(code) for code in codes]}
    results = [_result(finding, number[finding.code]) for finding in told]
    run: dict[str, Any] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    title = CODES[code][1] if code in CODES else "the document is not as the schema says"
    return {"id": code, "shortDescription": {"text": title}, "defaultConfiguration": {"level": severity_of(code)}}


def _result(finding: Diagnostic, index: int) -> dict[str, Any]:
    text = f"{finding.message} ({finding.fix})" if finding.fix else finding.message
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": text},
    }
    if finding.fix:
        result["properties"] = {"fix": finding.fix}
    if finding.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.file)}}
        if finding.line is not None:
            region = {"startLine": finding.line, "startColumn": finding.column}
            place["region"] = {key: value for key, value in region.items() if value is not None}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _uri(file: str) -> str:
    """A file's name as a URI: relative as it is given, absolute with its scheme."""
    escaped = quote(file.replace("\\", "/").encode("utf-8", "surrogateescape"))
    return f"file://{escaped}" if escaped.startswith("/") else escaped
