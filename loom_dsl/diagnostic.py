"""A finding in a document: what is wrong, where, and what to do."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
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
    """

    code: str
    message: str
    file: str = ""
    line: int | None = None
    column: int | None = None
    fix: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part not in ("", None))
        code = self.code if self.severity == "error" else f"{self.code} {self.severity}:"
        text = f"{place}: {code} {self.message}" if place else f"{code} {self.message}"
        return f"{text} ({self.fix})" if self.fix else text
