"""What a provider's refusal means to Loom: try again, wait, compress, or tell a person.

Providers agree on the status codes and on little else, so a refusal is read from its status, its code
and its words. What is passed on is cut and never holds a credential.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.chat.said import ErrorText, implied_status, read_error
from activities.chat.waits import asked_wait
from loom_dsl.errors import (
    ContextLengthExceeded,
    ModelAccessRefused,
    ModelError,
    ModelProtocolError,
    ModelRateLimit,
    ModelRequestRefused,
    ModelUnavailable,
)

_MESSAGE_LIMIT = 500
_SECRETS = re.compile(r"\b(?:sk|pk|gsk|xai|key|AIza)[-_][A-Za-z0-9_*.-]{6,}|(?i:bearer)\s+[^\s\"',;]+")


def _words(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern, re.IGNORECASE).search


_is_context_code = _words(
    r"context_length_exceeded|exceed_context_size_error|model_context_window_exceeded|context_window_exceeded"
    r"|context_too_long|prompt_too_long|input_too_long|max_context_length|request_too_large"
    r"|string_above_max_length_total"
)
_is_context = _words(
    r"context.?length|context.?window|context.?size|context.?limit|maximum context|(?:prompt"
    r"|input|conversation) (?:is )?too long"
    r"|too many (?:input |prompt )?tokens|(?:reduce|shorten) (?:the |your )?(?:length|size)? ?(?:of )?(?:the |your )?"
    r"(?:messages|input|prompt)|token count.{0,60}exceed|prompt token count.{0,40}exceed"
    r"|exceeds? the (?:maximum|max|model's|limit).{0,40}tokens|exceed(?:s|ed)? (?:the )?(?:model )?token limit"
    r"|maximum (?:prompt|input|sequence|model) length|input (?:tokens? )?(?:length|tokens) .{0,30}exceed"
    r"|input tokens exceed|tokens in request more than max|request too large|too large for model"
    r"|range of input length|inputs?`? tokens \+ `?max_new_tokens|prompt has \d+ tokens|prompt contains \d+ tokens"
    r"|longer than the (?:model|context)|max(?:imum)?_?(?:seq|model)_?len|tokens to keep from the initial prompt"
    r"|exceeds the (?:available|configured) (?:context|limit)|n_ctx|prompt 超长|超出最大长度"
    r"|超过.{0,8}最大.{0,6}长度|上下文.{0,6}(?:长度|超)"
    r"|输入.{0,4}(?:过长|长度超)|token limit exceeded|prompt exceeds",
)
_output_asked = _words(
    r"max_(?:completion_|new_|output_)?tokens\b.{0,60}?(?:too large|must be|should be|valid range|invalid|at most"
    r"|out of range|exceeds the (?:limit|max)|cannot exceed|(?:greater|larger) than)"
    r"|(?:invalid|range of) `?max_(?:completion_|new_|output_)?tokens|max_tokens: \d+ > "
    r"|in the messages, \d+ in the completion"
)
_is_quota = _words(
    r"insufficient[_ .-]?(?:user[_ ])?(?:quota|balance|credits?|funds?)|billing_(?:hard_limit_reached|not_active)"
    r"|billing hard limit|exceeded_current_quota|exceeded your current quota|credit balance|out of credits"
    r"|not enough (?:credits?|balance|funds)|no (?:more )?credits|(?:all|used up|spent|exhausted).{0,30}credits"
    r"|requires? (?:more|at least .{0,20}) credits|credit limit|credits? (?:have|has|are"
    r"|is) (?:been )?(?:exhausted|depleted|used)"
    r"|spend(?:ing)?[_ ](?:limit|cap)|monthly (?:included )?(?:credits|limit|quota|spend|usage)"
    r"|calls / month|per month"
    r"|quota (?:is |has been )?(?:exhausted|used up|depleted)|quota[_ ]exhausted|arrearage|overdue|in arrears"
    r"|freetieronly|free (?:tier|quota|trial).{0,40}(?:exhausted|used up|expired|ended)"
    r"|budget[_ ](?:has been )?exceeded"
    r"|(?:enable|requires?) billing|key limit exceeded|payment[_ ]required|check your (?:plan and )?billing"
    r"|account is not active|top[- ]?up|recharge"
    r"|not_enough_balance|perday|usage[_ ]limit[_ ](?:reached|exceeded)|余额不足|欠费|额度|充值|资源包"
)
_is_content = _words(
    r"content.?(?:policy|filter|management|exists risk)|moderation|flagged|safety|guardrail"
    r"|data_?inspection|inappropriate"
    r"|responsible.?ai|prohibited_content|usage (?:policies|guidelines)|unsafe|sensitive"
    r"|cyber_policy|敏感|违规|不安全"
)
_is_content_code = _words(
    r"content_?filter|content_policy|moderation|data_?inspection_?failed|prohibited_content|sensitive"
)
_is_region = _words(
    r"unsupported_country|(?:country|region|location|territory).{0,40}not (?:supported|available|allowed)"
    r"|not (?:supported|available|allowed) in (?:your|this) (?:country|region|location)|restricted (?:country|region)"
)
_is_key = _words(
    r"api[_ -]?key|invalid[_ ]?token|authenticat|unauthorized|unauthenticated|credential"
    r"|access token|no auth|令牌|密钥"
)
_is_model = _words(
    r"model[_ -]?(?:not[_ -]?found|not[_ -]?exist|decommissioned|deprecated)|invalid[_ ]model"
    r"|not a valid model|deployment"
    r"not ?found|model.{0,200}?(?:does not exist|not found|not exist|decommissioned"
    r"|is not available|not supported|unknown)"
    r"|(?:unknown|no such|unsupported) model|模型不存在"
)
_is_model_fault = _words(r"tool_use_failed|output_parse_failed|json_validate_failed|malformed_function_call")
_is_rate = _words(
    r"rate[_ -]?limit|too many requests|tokens per minute|requests per|per minute|throttl|resource_exhausted"
)
_FINE = (0, "0", 200, "200", "success", "Success", "OK", "ok")
_AGAIN = {408, 409, 421, 423, 424, 425, 449, 460, 498, 499}
"""Statuses below 500 that pass: a timeout, a conflict, and no room at the moment (498)."""
_ACCESS = {401, 402, 403, 404, *range(300, 400)}
"""Statuses that tell of the credential, the account, the model's name or the address, which a person can put right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What messages need to say about the other side.

    Attributes:
        host: The host of the base URL, with its port.
        url: The address of chat completions.
        api_key: The credential, to be masked; empty for none.
        key_name: The environment variable that holds the credential.
        url_name: The environment variable that holds the base URL.
    """

    host: str
    url: str
    api_key: str = field(repr=False)
    key_name: str
    url_name: str

    def masked(self, text: str) -> str:
        """Return a provider's text, cut, and without anything that looks like a credential."""
        if self.api_key:
            text = text.replace(self.api_key, "***")
        text = " ".join(_SECRETS.sub("***", text[: 4 * _MESSAGE_LIMIT]).split())
        return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A provider's refusal, read."""

    provider: Provider
    status: int
    body: object
    headers: Mapping[str, str]
    model: str
    said: ErrorText
    is_told: bool = True
    """Whether the provider told the status, be it in words."""
    is_http: bool = True
    """Whether it is the status of the HTTP answer."""

    @property
    def text(self) -> str:
        return self.provider.masked(self.said.message).rstrip(".") or "no reason given"

    @property
    def told(self) -> str:
        host = self.provider.host
        if self.is_http:
            return f"{host} answered {self.status}: {self.text}"
        return f"{host} answered with an error{f' ({self.status})' if self.is_told else ''}: {self.text}"

    @property
    def wait(self) -> float | None:
        limited = self.status == 429
        return asked_wait(self.headers, self.body, self.said.message, limited=limited)


def status_error(
    provider: Provider, status: int, body: object, headers: Mapping[str, str], *, model: str
) -> ModelError:
    """Return the error that an HTTP status means.

    Args:
        provider: Who answered.
        status: The HTTP status.
        body: The answer's JSON, or its text.
        headers: The answer's headers, in lower case.
        model: The model that was asked for.
    """
    return _judged(
        _Refusal(provider=provider, status=status, body=body, headers=headers, model=model, said=read_error(body))
    )


def chunk_error(provider: Provider, body: object, *, model: str) -> ModelError:
    """Return the error that an answer means which has the status 200 and says that it failed.

    Args:
        provider: Who answered.
        body: The object in which it says so.
        model: The model that was asked for.
    """
    said = read_error(body)
    status = implied_status(said)
    return _judged(
        _Refusal(
            provider=provider,
            status=status or 500,
            body=body,
            headers={},
            model=model,
            said=said,
            is_told=status is not None,
            is_http=False,
        )
    )


def _judged(refusal: _Refusal) -> ModelError:
    """Say what a refusal means; the first that it can be, from what a person or a compression can mend to the rest."""
    for judge in (_too_long, _asked_too_much, _used_up, _model_fault, _content, _not_again, _passing):
        if (error := judge(refusal)) is not None:
            return error
    return _access(refusal)


def _too_long(refusal: _Refusal) -> ModelError | None:
    if not _tells_of_context(refusal):
        return None
    return ContextLengthExceeded(
        f"The conversation is too long for the model {refusal.model!r}: {refusal.text}. Take a larger model, or set "
        "limits.max_context_tokens to what this one takes."
    )


def _tells_of_context(refusal: _Refusal) -> bool:
    said, status = refusal.said, refusal.status
    if _is_context_code(said.codes) or status == 413:
        return True
    if _asks_for_too_much(said.message):
        return False
    # A rate limit that one request alone exceeds is not helped by waiting; its words say "request too large".
    fits = status in (400, 422, 500) or not refusal.is_told
    return bool(_is_context(said.all)) and (fits or (status == 429 and "too large" in said.message.lower()))


def _asks_for_too_much(message: str) -> bool:
    """Whether it is the asked length of the answer that does not fit, which no compression mends."""
    if not _output_asked(message) or re.search(r"inputs?`? tokens \+", message):
        return False
    window = re.search(r"context length (?:is|of) (\d+)", message)
    asked = re.search(r"(\d+) in the completion", message) or re.search(r"tokens\D{0,40}(\d+)", message)
    # Where the answer asked for would have room, it is the conversation that grew.
    return window is None or asked is None or int(asked[1]) * 2 > int(window[1])


def _asked_too_much(refusal: _Refusal) -> ModelError | None:
    if refusal.status not in (400, 422) or not _asks_for_too_much(refusal.said.message):
        return None
    told = f"{refusal.provider.host} refuses the request ({refusal.status}): {refusal.text}"
    return ModelRequestRefused(f"{told}. Lower max_tokens in the agent's parameters.")


def _used_up(refusal: _Refusal) -> ModelError | None:
    said = refusal.said
    if refusal.is_told and refusal.status >= 500:
        return None  # an outage of somebody's billing is an outage
    daily = "perday" in said.all.lower()
    limited = bool(_is_rate(said.codes)) or said.is_google
    if not (refusal.status == 402 or (daily if limited else _is_quota(said.all))):
        return None
    until = "for today" if daily else ""
    used = f"The account's quota is used up{' ' if until else ''}{until}"
    return ModelAccessRefused(f"{refusal.told}. {used}: look at its plan and billing.")


def _model_fault(refusal: _Refusal) -> ModelError | None:
    """The model wrote a call that its provider cannot read; it may write a better one."""
    if not _is_model_fault(refusal.said.codes):
        return None
    return ModelProtocolError(f"{refusal.told}. The model's answer was no use to its provider; it is asked again.")


def _content(refusal: _Refusal) -> ModelError | None:
    said = refusal.said
    by_code = bool(_is_content_code(said.codes))
    if by_code or (refusal.status in (400, 401, 403, 422, 451) and _is_content(said.all)):
        return ModelRequestRefused(f"{refusal.provider.host} refuses the content ({refusal.status}): {refusal.text}")
    return None


def _not_again(refusal: _Refusal) -> ModelError | None:
    status = refusal.status
    if refusal.headers.get("x-should-retry") != "false" or status in (401, 403, 404):
        return None
    later = status == 429 or status >= 500 or status in _AGAIN  # what a person may try again, and we may not
    kind = ModelAccessRefused if later else ModelRequestRefused
    return kind(f"{refusal.told}. The provider asks not to try again.")


def _passing(refusal: _Refusal) -> ModelError | None:
    status, again = refusal.status, refusal.headers.get("x-should-retry") == "true"
    if status == 429 or (status in (400, 403, 503) and _is_rate(refusal.said.codes)):
        return ModelRateLimit(f"{refusal.told}. Lower the rate, or wait.", retry_after=refusal.wait)
    if status >= 500 or status in _AGAIN or again:
        return ModelUnavailable(
            f"{refusal.told}. The provider is failing; look at its status page.", retry_after=refusal.wait
        )
    return None


def _access(refusal: _Refusal) -> ModelError:
    status, said = refusal.status, refusal.said
    host, key_name, url_name = refusal.provider.host, refusal.provider.key_name, refusal.provider.url_name
    if status in (400, 401, 403, 404, 422) and _is_region(said.all):
        return ModelAccessRefused(
            f"{host} does not serve this place ({status}): {refusal.text}. Run the worker where it does, or set "
            f"{url_name} to another provider."
        )
    if 300 <= status < 400:
        target = refusal.provider.masked(refusal.headers.get("location", "another address"))
        return ModelAccessRefused(f"{host} redirects to {target}. Set {url_name} to the final address.")
    if status == 404 or (status in (400, 403, 422) and _is_model(f"{said.codes} {said.message}")):
        return ModelAccessRefused(
            f"{refusal.provider.url} answered {status} for the model {refusal.model!r}: {refusal.text}. Check the "
            f"model's name, and that {url_name} is the API's base address (most end in /v1)."
        )
    if status in (401, 403) or (status == 400 and _is_key(said.all)):
        return ModelAccessRefused(
            f"{host} refuses the credential ({status}): {refusal.text}. "
            f"Set {key_name} to a key that is valid there, or {url_name} to where the key belongs."
        )
    kind = ModelAccessRefused if status in _ACCESS else ModelRequestRefused
    return kind(f"{host} refuses the request ({status}): {refusal.text}")


def ended_badly(provider: Provider, word: str) -> ModelError:
    """Return the error that a finish reason means which is no answer's end.

    Args:
        provider: Who answered.
        word: The finish reason, as it was told.
    """
    plain = word[:40]
    if re.search(r"rate_?limit|quota", word, re.IGNORECASE):
        return ModelRateLimit(f"{provider.host} broke its answer off ({plain!r}). Lower the rate, or wait.")
    if re.search(r"malformed|unexpected|missing", word, re.IGNORECASE):
        return ModelProtocolError(
            f"{provider.host} ended its answer with {plain!r}: the model wrote a call that cannot be read."
        )
    return ModelUnavailable(f"{provider.host} gave up in the middle of its answer (finish reason {plain!r}).")


def error_in(chunk: Mapping[str, Any]) -> object | None:
    """Find what says, in a chunk or a document of a 200 answer, that the call failed; None where nothing does."""
    if chunk.get("error"):
        return chunk
    groq = chunk.get("x_groq")
    if isinstance(groq, dict) and groq.get("error"):
        return groq
    base = chunk.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in (0, None, "0"):
        return {"minimax": base}
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("error"):
            return choice
    return chunk if not choices and _is_complaint(chunk) else None


def _is_complaint(chunk: Mapping[str, Any]) -> bool:
    """Whether an object without choices is about a failure: usage, keep-alives and filters' reports are not."""
    if chunk.get("object") == "error" or chunk.get("type") == "error" or chunk.get("errors"):
        return True
    if chunk.get("success") is False or chunk.get("ok") is False:
        return True
    if chunk.get("code") in _FINE or chunk.get("base_resp"):
        return False  # it says that all is well, be there an answer or not
    said = read_error(chunk)
    if "choices" in chunk and not said.message:
        return False
    return bool(said.message) or said.status is not None
