"""What jobs may be started with over HTTP: the agents and the directories that the gateway's operator has named."""

import os
from dataclasses import dataclass
from pathlib import Path

from loom_client.settings import Settings
from loom_dsl.agent.definition import Agent, load_agent
from loom_dsl.errors import ConfigurationError, LoomError
from loom_gateway.responses import Problem, log

AGENTS, WORK = "LOOM_GATEWAY_AGENTS", "LOOM_GATEWAY_WORK"
OWN = "jobs"
"""Below it every job that names no directory gets one of its own."""


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Where agents are, and where their jobs work.

    Attributes:
        agents: Directory of agents' files; ``scribe.yaml`` is the agent `scribe`.
        work: Directory of working directories.
    """

    agents: Path
    work: Path

    def agent(self, name: str) -> tuple[Agent, Path | None]:
        """Read an agent.

        Returns:
            The agent, and the file of its turn's graph, if it names one.

        Raises:
            Problem: There is none of this name, or its file is not in order.
        """
        path = self.agents / f"{name}.yaml"
        try:
            agent = load_agent(path.read_bytes(), path.name, os.environ)
        except FileNotFoundError:
            raise Problem(404, f"this gateway has no agent {name}") from None
        except OSError as error:
            raise _not_in_order(name, f"it cannot be read: {error.strerror}") from None
        except LoomError as error:
            raise _not_in_order(name, error.message) from None
        if agent.name != name:
            raise _not_in_order(name, f"it has the name {agent.name}")
        return agent, self.agents / agent.turn if agent.turn else None

    def directory(self, name: str | None, job: str) -> tuple[Path, bool]:
        """Give a job's working directory; the job's own one is made when it is not there.

        Returns:
            The directory, and whether the job's own one holds something already.

        Raises:
            Problem: There is none of this name.
        """
        if name is not None:
            place = self.work / name
            if name == OWN or not place.is_dir():
                raise Problem(404, f"this gateway has no directory {name}")
            return place, False
        place = self.work / OWN / job
        try:
            place.mkdir(parents=True, exist_ok=True)
            return place, any(place.iterdir())
        except OSError as error:
            log(f"{place} cannot be made: {error.strerror}")
            raise Problem(503, "no directory can be made for the job; the gateway's log says why") from None


def start_policy_of(settings: Settings) -> StartPolicy | None:
    """Give what jobs may be started with; None: the gateway starts none.

    Raises:
        ConfigurationError: Only one of the two directories is named, or one is not there.
    """
    named = {AGENTS: settings.gateway_agents, WORK: settings.gateway_work}
    if not any(named.values()):
        return None
    for variable, path in named.items():
        if not path:
            raise ConfigurationError(f"{variable} is not set; a gateway that starts jobs needs {AGENTS} and {WORK}")
        if not Path(path).expanduser().is_dir():
            raise ConfigurationError(f"{variable}: there is no directory {path}")
    agents, work = (Path(path).expanduser().resolve() for path in named.values())
    return StartPolicy(agents, work)


def _not_in_order(name: str, why: str) -> Problem:
    log(f"agent {name}: {why}")
    return Problem(503, f"the file of agent {name} is not in order; the gateway's log says why")
