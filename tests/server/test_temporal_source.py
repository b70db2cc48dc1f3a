"""The Temporal CLI, built for real."""

import os
import shutil
from pathlib import Path

import pytest

from loom_cli.dev.temporal_cli import build_with_go, find_temporal, temporal_cache
from tests.support.server import small_server

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
async def test_a_binary_built_from_source_serves(tmp_path: Path) -> None:
    go = Path(shutil.which("go") or "").parent
    env = {**os.environ, "TEMPORAL_CLI": "", "PATH": f"{go}:/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    built = find_temporal(env, sources=[build_with_go])
    assert built == temporal_cache(env) / "temporal"
    async with small_server(tmp_path / "server", binary=built) as server:
        assert server.running
    shutil.rmtree(tmp_path / "cache")  # Go's own cache is in there too: over a gigabyte
