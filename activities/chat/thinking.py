"""Reasoning that models write into their text, between ``<think>`` and ``</think>``.

Only models that are known for it are read so: in the text of all others the tag is a text like any other.
"""

import re

_MODELS = re.compile(
    r"deepseek.*(?:r1|reason|v3\.[1-9])|\br1\b|qwq|qwen-?3|qwen.*think|minimax-?m|glm-?(?:4\.[1-9]|[5-9]|z1)|magistral"
    r"|thinking|reasoner|reasoning|nemotron|exaone|hunyuan|skywork|marco-o1|smollm3|cogito|olmo.*think|ernie.*(?:x1|think)"
    r"|step-?[3-9]|mimo|hermes-?4|seed-oss|openthinker|s1\.1|lfm.*think|kimi.*think|ring-",
    re.IGNORECASE,
)
_OPEN, _CLOSE = "<think>", "</think>"


def thinks_in_text(model: str) -> bool:
    """Whether a model, by its name at the provider, is known to write its reasoning into its text."""
    return bool(_MODELS.search(model))


class ThinkReader:
    """Takes the reasoning out of the front of a text that comes in pieces.

    Args:
        active: Whether there may be any; otherwise every piece is text.
    """

    def __init__(self, *, active: bool) -> None:
        self._held = ""
        self._state = "front" if active else "text"
        self._pieces: list[str] = []

    @property
    def cut_out(self) -> str:
        """What was taken out so far, with its tags."""
        return "".join(self._pieces)

    @property
    def reasoning(self) -> str:
        """What was thought so far."""
        return self.cut_out.strip().removeprefix(_OPEN).removesuffix(_CLOSE).strip()

    def feed(self, text: str) -> str:
        """Take a piece, and return what of it is text."""
        if self._state == "text" or not text:
            return text
        self._held += text
        if self._state == "front":
            front = self._held.lstrip()
            if not front.startswith(_OPEN):
                if _OPEN.startswith(front):
                    return ""
                self._state = "text"
                return self._let_go()
            self._state = "thought"
        if self._state == "thought":
            self._think()
        if self._state == "after":
            if not self._held.strip():
                return ""
            blank = len(self._held) - len(self._held.lstrip())
            self._pieces.append(self._held[:blank])
            self._held, self._state = self._held[blank:], "text"
            return self._let_go()
        return ""

    def finish(self, *, cut: bool) -> str:
        """Return what is text at the end: all of it, where a thought was never closed though the answer is whole."""
        if self._state == "thought" and not cut:
            text = (self.cut_out + self._held).lstrip().removeprefix(_OPEN).lstrip()
            self._pieces, self._held, self._state = [], "", "text"
            return text
        if self._state in ("thought", "after"):
            self._pieces.append(self._let_go())
        return self._let_go()

    def _think(self) -> None:
        end = self._held.find(_CLOSE)
        if end >= 0:
            end += len(_CLOSE)
            self._pieces.append(self._held[:end])
            self._held, self._state = self._held[end:], "after"
            return
        # Half a closing tag waits for its other half.
        keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if self._held.endswith(_CLOSE[:n])), 0)
        at = len(self._held) - keep
        self._pieces.append(self._held[:at])
        self._held = self._held[at:]

    def _let_go(self) -> str:
        held, self._held = self._held, ""
        return held
