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
    b'"approval_requested","approval_decided","approval_id":"ap_","expires_at":null,"choices":["approve","reject"],'
    b'"error":{"code":"tool_error","message":"","advice":"","recoverable":true}"not_found""permission_denied"'
    b'"execute_bash""calculator""edit_file""write_file","glob","grep","read_file","path":"","pattern":"**/*.py"'
    b'"compaction","summary","reminder","system","developer","user","stream_reset","inbox","budget","limit_reached"'
    b'"awaiting_human","paused","aborted","failed","completed","model_running","tool_running","idle","running"'
    b'"finish_reason":"tool_calls""finish_reason":"stop","model":"gpt-4.1-mini","usage":{"input_tokens":,"output_tokens":'
    b'"discover","validate","authorize","check_cancel","execute","format","guard","recall","assemble","compress",'
    b'"feedback","recurse","finish","state_changed","from":"","to":"","duration_ms":,"attempt":1,"sequence":,"stream":"'
    b'"id":"call_","type":"function","function":{"arguments":"{\\"path\\":\\"","name":"read_file"}}],'
    b'{"role":"assistant","tool_calls":[{"function":{"arguments":"","name":""},"id":"call_","type":"function"}]}'
    b'{"role":"tool","tool_call_id":"call_","name":""}{"content":{"$blob":""},"$blob":"'
    b'"type":"assistant_message","type":"tool_result","type":"model_delta","text":"","status":"ok","digest":"'
    b'"type":"tool_started","type":"tool_finished","call_id":"call_","tool":"read_file","type":"phase_start"'
    b'"type":"phase_end","phase":"model","node":"model#1","phase":"calls","node":"calls#1","job":"","turn":1,"visit":1},'
    b'{"at":"20","node":"","phase":"","turn":,"type":"'
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
