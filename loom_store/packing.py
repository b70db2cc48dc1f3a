"""How text and bytes lie in the store: deflated when that is shorter, with a dictionary of Loom's own words.

The first byte names the form, so that a form can be added and the old ones are read for ever.
"""

import zlib
from typing import Final

_PLAIN: Final = b"\x00"
_DEFLATED: Final = b"\x01"

# Never change this text: rows of form 1 cannot be read without it. A better one gets a form of its own.
# Deflate refers to what is near with fewer bits, so the most frequent words stand last.
_WORDS_1: Final = (
    b'"prompt_tokens":,"completion_tokens":,"total_tokens":,"cached_tokens":,"cost_micros":,"reasoning_tokens":'
    b'"approval_id":"ap_","t":"approval_requested"},"choice":"approve","t":"approval_decided"},"expires_at":null,'
    b'"error":"tool_execution_failed","message":"","t":"error"},"code":"","t":"warning"},"op":"pause","by":"","t":"control"}'
    b'"not_found""permission_denied""execute_bash""calculator""edit_file""glob""grep""write_file""path":"","pattern":"**/*.py"'
    b'"compaction","summary","reminder","system","developer","user","inbox","budget","limit_reached","reason":'
    b'"awaiting_human","paused","aborted","failed","completed","cancelled","unknown","doc_count":,"t":"retrieval_complete"}'
    b'{"attempt":1,"content":"","n":,"sequence":,"stream":"/model#1","type":"llm_delta"}"type":"stream_reset"}'
    b'"finish_reason":"stop","finish_reason":"tool_calls","model":"gpt-4.1-mini","usage":{"input_tokens":,"output_tokens":'
    b'{"role":"assistant","tool_calls":[{"function":{"arguments":"{\\"path\\":\\"","name":"read_file"},"id":"call_",'
    b'"type":"function"}]}{"name":"read_file","role":"tool","status":"ok","tool_call_id":"call_"}'
    b'{"depth":,"from_turn":"","n":,"t":"recursion","to_turn":""},{"content":{"$blob":""},"n":,"t":"agent_finish"}'
    b'{"content":{"$blob":""},"n":,"status":"success","t":"tool_result","tool_call_id":"call_"},'
    b'{"n":,"results_count":1,"t":"tool_calls_complete"},{"n":,"t":"tool_calls_start","tool_count":1,"tool_names":["'
    b'{"n":,"t":"tool_start","tool":"read_file","tool_call_id":"call_"},{"content":{"$blob":""},"n":,"t":"llm_finish","usage":'
    b'{"model":"","n":,"t":"llm_start"},{"n":,"stream":"","t":"stream_start"},{"iteration":,"n":,"t":"iteration_start"},'
    b'{"n":,"name":"discover","t":"validate","authorize","check_cancel","execute","format","recall","compress","finish"'
    b'{"from":"tool_running","n":,"state":"model_running","t":"state"},{"from":"model_running","n":,"state":"tool_running",'
    b'"name":"recurse","t":"phase_start"},{"n":"name":"feedback","t":"phase_end"},{"n":,"name":"guard","t":"phase_start"},'
    b'{"n":,"name":"assemble","t":"phase_end"},{"n":,"name":"calls","t":"phase_end"},{"n":,"name":"model","t":"phase_start"},{"n":'
)


def pack(data: bytes) -> bytes:
    """Make bytes ready for a row."""
    if len(data) > 24:
        deflater = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, _WORDS_1)
        deflated = deflater.compress(data) + deflater.flush()
        if len(deflated) < len(data):
            return _DEFLATED + deflated
    return _PLAIN + data


def unpack(packed: bytes) -> bytes:
    """Give back what `pack` was given.

    Raises:
        ValueError: The row was not written by `pack`, or by a newer release.
    """
    form = packed[:1]
    if form == _PLAIN:
        return packed[1:]
    if form == _DEFLATED:
        inflater = zlib.decompressobj(-15, zdict=_WORDS_1)
        return inflater.decompress(packed[1:]) + inflater.flush()
    raise ValueError(f"unknown row form {form!r}")


def pack_text(text: str) -> bytes:
    """Make text ready for a row. Lone surrogates are kept."""
    return pack(text.encode("utf-8", "surrogatepass"))


def unpack_text(packed: bytes) -> str:
    """Give back what `pack_text` was given."""
    return unpack(packed).decode("utf-8", "surrogatepass")
