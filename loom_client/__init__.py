"""The calling side: a connection to Loom, and the jobs that a program starts, watches and decides about.

``async with connect() as loom: ...`` is where a program begins. Imports `loom_tools`, `loom_store` and `loom_dsl`;
`loom_gateway` and `loom_cli` import it. Each name is loaded when it is first used: ``loom --help`` imports this
package, and need not wait for the SDK.
"""

from typing import TYPE_CHECKING

from loom_dsl.lazy import lazy_names

if TYPE_CHECKING:
    from loom_client.client import Loom
    from loom_client.connection import connect
    from loom_client.effects import EffectRecord, Undone
    from loom_client.job import GraphJob, Job, JobGone, NoAnswer
    from loom_client.records import ApprovalRecord, JobRecord, Receipt
    from loom_client.runner import AgentRunner, Reply, RunFailed
    from loom_client.settings import Settings
    from loom_client.signing import SigningKey
    from loom_client.start.schedules import Schedule, Times
    from loom_dsl.machine.status import JobStatus

__all__ = [
    "AgentRunner",
    "ApprovalRecord",
    "EffectRecord",
    "GraphJob",
    "Job",
    "JobGone",
    "JobRecord",
    "JobStatus",
    "Loom",
    "NoAnswer",
    "Receipt",
    "Reply",
    "RunFailed",
    "Schedule",
    "Settings",
    "SigningKey",
    "Times",
    "Undone",
    "connect",
]

if not TYPE_CHECKING:  # a type checker would take every name for one that there is
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "loom_client.client": "Loom",
            "loom_client.connection": "connect",
            "loom_client.job": "GraphJob Job JobGone NoAnswer",
            "loom_client.runner": "AgentRunner Reply RunFailed",
            "loom_client.settings": "Settings",
            "loom_client.signing": "SigningKey",
            "loom_client.start.schedules": "Schedule Times",
            "loom_client.records": "ApprovalRecord JobRecord Receipt",
            "loom_client.effects": "EffectRecord Undone",
            "loom_dsl.machine.status": "JobStatus",
        },
    )
