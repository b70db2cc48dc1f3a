"""What a program imports from the package itself."""

import subprocess
import sys

import pytest

import loom_client
from loom_client.connection import connect


def test_a_program_connects_with_what_the_package_is_named_after() -> None:
    assert loom_client.connect is connect
    assert loom_client.__all__ == ["connect"]


def test_a_name_that_is_not_there_is_told_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="'loom_client' has no attribute 'conect'"):
        _ = loom_client.conect  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing_heavy() -> None:
    look = "import sys, loom_client; print([n for n in ('temporalio', 'sqlalchemy', 'pydantic') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
