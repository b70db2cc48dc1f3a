"""What a model call costs, from the public price list that `genai-prices` ships."""

from functools import lru_cache

from genai_prices import Usage, calc_price

from loom_dsl.agent import call_name


def cost_microusd(model: str, answered_by: str, prompt: int, completion: int, cached: int) -> int:
    """Give the cost in millionths of a US dollar; 0 for a model that the list does not have."""
    for name in (answered_by, call_name(model)):
        if name and _is_priced(name):
            usage = Usage(input_tokens=prompt, output_tokens=completion, cache_read_tokens=cached)
            return round(float(calc_price(usage, model_ref=name).total_price) * 1_000_000)
    return 0


@lru_cache(maxsize=256)
def _is_priced(name: str) -> bool:
    try:
        calc_price(Usage(input_tokens=1), model_ref=name)
    except LookupError:
        return False
    return True
