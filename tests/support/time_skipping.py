"""Temporal's time-skipping test server, from Maven Central: days of timers pass in milliseconds."""

import shutil
import tempfile
from pathlib import Path

from loom_cli.dev.progress import run_shown
from loom_cli.dev.temporal_cli import temporal_cache

VERSION = "1.31.0"

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>loom</groupId> <artifactId>time-skipping</artifactId> <version>1</version>
  <dependencies><dependency>
    <groupId>io.temporal</groupId> <artifactId>temporal-test-server</artifactId> <version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""


def find_time_skipping_server() -> tuple[Path | None, str]:
    """A program for `WorkflowEnvironment.start_time_skipping(test_server_existing_path=str(program))`.

    Returns:
        The program, or None and why there is none (to skip a test with).
    """
    program = temporal_cache().with_name(f"temporal-test-server-{VERSION}") / "server"
    if program.exists():
        return program, ""
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        return None, f"{' and '.join(missing)} not on PATH"
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        (Path(folder) / "pom.xml").write_text(_POM)
        status, output = run_shown(
            ["mvn", "-B", "-q", "dependency:build-classpath", "-Dmdep.outputFile=classpath"],
            "Getting the time-skipping server from Maven Central",
            cwd=Path(folder),
        )
        if status:
            return None, f"Maven Central: {output.strip().splitlines()[-1] if output.strip() else 'no message'}"
        classpath = (Path(folder) / "classpath").read_text()
        script = Path(folder) / "server"
        script.write_text(f"#!/bin/sh\nexec java -cp '{classpath}' io.temporal.testserver.TestServer \"$@\"\n")
        script.chmod(0o755)
        script.replace(program)  # whole or not at all
    return program, ""
