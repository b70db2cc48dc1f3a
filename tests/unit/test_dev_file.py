import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from loom_cli.dev.file import DEV_FILE, DevServerSettings
from loom_dsl.documents.document import load_yaml
from loom_dsl.errors import ConfigurationError, DocumentError

ROOT = Path(__file__).parents[2]


def compose() -> Any:
    return load_yaml((ROOT / DEV_FILE).read_text(), DEV_FILE).data


def test_the_dev_file_sets_what_a_turn_needs_to_be_fast() -> None:
    settings = DevServerSettings.load()
    assert (settings.port, settings.http_port, settings.ui_port) == (7233, 7243, 8233)
    assert settings.dynamic_config == (
        'history.workflowIdReuseMinimalInterval="0s"',
        "history.transferProcessorMaxPollRPS=2000",
        "history.timerProcessorMaxPollRPS=2000",
        'history.timerProcessorMaxTimeShift="10ms"',
        "history.queueReaderStuckCriticalAttempts=1000",
        "history.visibilityProcessorMaxPollRPS=1",
        "history.visibilityTaskBatchSize=1000",
    )


def test_what_is_appended_comes_last_and_so_wins() -> None:
    arguments = DevServerSettings.load().arguments("--ip=127.0.0.1", "--port=1")
    assert arguments[:2] == ["server", "start-dev"]
    assert [a for a in arguments if a.startswith("--port=")] == ["--port=7233", "--port=1"]
    assert arguments.index("--ip=0.0.0.0") < arguments.index("--ip=127.0.0.1")


def test_a_stock_server_gets_no_dynamic_configuration_and_all_else() -> None:
    settings = DevServerSettings.load()
    tuned, stock = settings.arguments(), settings.arguments(stock=True)
    assert set(tuned) - set(stock) == {f"--dynamic-config-value={setting}" for setting in settings.dynamic_config}


def test_compose_publishes_the_ports_of_the_command_on_loopback_only() -> None:
    settings = DevServerSettings.load()
    ports = (settings.port, settings.http_port, settings.ui_port)
    assert compose()["services"]["temporal"]["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]


def test_compose_hands_the_worker_the_servers_port_and_waits_for_the_server() -> None:
    worker = compose()["services"]["worker"]
    assert worker["environment"]["TEMPORAL_ADDRESS"] == f"temporal:{DevServerSettings.load().port}"
    assert worker["depends_on"] == {"temporal": {"condition": "service_healthy"}}
    assert compose()["services"]["temporal"]["healthcheck"]["test"][-1].endswith(f":{DevServerSettings.load().port}")


def test_compose_declares_every_volume_and_only_known_keys() -> None:
    data = compose()
    assert set(data) <= {"name", "services", "volumes"}
    used = {volume.partition(":")[0] for service in data["services"].values() for volume in service["volumes"]}
    assert used == set(data["volumes"])
    known = {"image", "build", "command", "environment", "ports", "volumes", "healthcheck", "depends_on", "restart"}
    for service in data["services"].values():
        assert set(service) <= known
        assert ("image" in service) != ("build" in service)


def test_the_database_lies_in_the_volume() -> None:
    (db,) = [a for a in DevServerSettings.load().other if a.startswith("--db-filename=")]
    (volume,) = compose()["services"]["temporal"]["volumes"]
    assert Path(db.partition("=")[2]).parent == Path(volume.partition(":")[2])


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_container_runs_a_worker_as_an_ordinary_user() -> None:
    parts = instructions()
    assert parts[0][0] == "FROM"
    assert {name for name, _ in parts} <= {"FROM", "COPY", "RUN", "USER", "ENV", "WORKDIR", "CMD"}
    assert [value for name, value in parts if name == "USER"] == ["loom"]
    assert parts[-1] == ("CMD", '["loom", "worker"]')
    for name, value in parts:
        if name == "RUN":
            assert shlex.split(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services: {}", "services.temporal.command must be a list"),
        ("services: {temporal: {command: [start-dev]}}", "must begin with `server`, `start-dev`"),
        ("services: {temporal: {command: [server, start-dev, --port, 7233]}}", "write `--port` as `--name=value`"),
        ("services: {temporal: {command: [server, start-dev, --port=7233]}}", "needs `--http-port=` with a port"),
        ("services: {temporal: {command: [server, start-dev, --port=70000]}}", "needs `--port=` with a port"),
    ],
)
def test_a_dev_file_that_cannot_be_run_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "dev.yml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        DevServerSettings.load(path)
    assert message in refused.value.message
    assert str(path) in refused.value.message


def test_a_dev_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yml cannot be read"):
        DevServerSettings.load(tmp_path / "none.yml")


def test_a_dev_file_that_is_not_yaml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "dev.yml"
    path.write_text("services:\n  temporal: [")
    with pytest.raises(DocumentError, match=r"dev\.yml:\d+:\d+"):
        DevServerSettings.load(path)
