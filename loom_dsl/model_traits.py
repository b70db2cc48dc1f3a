"""What is known of a model by its name."""

import re

_SEES = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|chatgpt-4o|(?<![a-z0-9])o[134](?![a-z0-9])|claude-(?:[3-9]|opus|sonnet|haiku)"
    r"|gemini|gemma-?3|pixtral|llava|vision|(?<![a-z0-9])(?:[a-z0-9.]*-)?vl(?![a-z0-9])|llama-?4"
)
_BLIND = re.compile(r"o1-mini|o3-mini|o1-preview|audio|realtime|transcribe|tts|embedding|search-preview")


def takes_images(model: str) -> bool:
    """Say whether a model is known to take images; of an unknown one it is not known, so no.

    Args:
        model: As the agent names it: `provider:model`, or the model alone.
    """
    name = model.lower()
    return _SEES.search(name) is not None and _BLIND.search(name) is None
