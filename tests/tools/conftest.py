"""Calling tools as the pipeline does: validated, bound, with a context."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_dsl.tools.context import ToolContext
from loom_dsl.tools.tool import validate_arguments
from loom_tools.registry import ToolRegistry

Call = Callable[..., str]


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(working_dir=tmp_path)


@pytest.fixture
def call(context: ToolContext) -> Call:
    registry = ToolRegistry.load()

    def make(name: str, **arguments: Any) -> str:
        made = registry.resolve(name)
        result = made(**made.bind(validate_arguments(made, arguments), context))
        assert isinstance(result, str)
        return result

    return make
