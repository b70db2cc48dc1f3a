"""How an answer ended: the many words of providers for the few things that can have happened.

Gateways hand on whatever the model behind them says, so a word is read by what it names and not by who sent it. What is
not known stays the provider's own word: the text is kept, and it is told.
"""

import re

STOP, TOOL_CALLS, LENGTH, FILTERED = "stop", "tool_calls", "length", "content_filter"
FAILED = "error"
"""The provider gave up: what there is of the answer is not one."""
_STOPS = (
    r"stop|stop_(?:token|sequences?)|eos|eos_token|end|end_(?:turn|of_text|of_turn)|endoftext"
    r"|completed?|finish|finished"
    r"|done|success|succeeded|ended|normal|natural"
)
_CALLS = r"tools?|tool_?calls?|tool_use|tooluse|function_calls?"
_WORDS = (
    (STOP, rf"^(?:{_STOPS})$"),
    (TOOL_CALLS, rf"^(?:{_CALLS})$"),
    (
        FILTERED,
        r"^(?:language|spii)$|filter|safety|recitation|block|prohibit|sensitive|guardrail|refus"
        r"|moderat|policy|toxic|flagged|censor|violat",
    ),
    (
        FAILED,
        r"error|fail|abort|cancel|time_?d?_?out|unavail|overload|interrupt|malform|insufficient|disconnect|exception"
        r"|crash|unexpected|kill|preempt|evict|shutdown|rate_?limit|quota|busy|missing_thought",
    ),
    (
        LENGTH,
        r"^limit$|length|max.*token|token.*(?:limit|max)|truncat|context|window|incomplete"
        r"|max_output|budget|too_long",
    ),
)


def ended(word: str) -> str:
    """Return what a finish reason means: one of this module's words, or the word itself where it is not known."""
    plain = re.sub(r"[\s.-]+", "_", word.strip()).lower().removeprefix("finish_reason_").removeprefix("finishreason_")
    return next((kind for kind, words in _WORDS if re.search(words, plain)), word)


def is_cut(finish: str) -> bool:
    """Whether an answer with this end is cut off, so that more was to come and its calls cannot be run."""
    return ended(finish) in (LENGTH, FILTERED, FAILED)


def is_known(finish: str) -> bool:
    """Whether it is known what a finish reason means."""
    return ended(finish) in (STOP, TOOL_CALLS, LENGTH, FILTERED, FAILED)
