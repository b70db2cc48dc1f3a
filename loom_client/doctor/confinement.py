"""How commands of agents would be confined on this machine."""

from collections.abc import Mapping

from loom_client.doctor.check import Check, Status
from loom_dsl.errors import LoomError

_WHAT = "confinement of commands"
_HOW = "docs/howto/confinement.md"


def confinement(env: Mapping[str, str]) -> Check:
    """Whether execute_bash and python_repl can run here, and how; tried with a process that does nothing."""
    from activities.confine.run import Launcher
    from activities.confine.setting import SETTING, lacking, mode_of

    launcher = Launcher()
    try:
        mode, means = mode_of(env), launcher.means()
    except LoomError as error:
        return Check(Status.FAIL, _WHAT, error.message, f"correct it where the worker runs: {_HOW}")
    finally:
        launcher.close()
    if mode == "off":
        fix = f"unset {SETTING} where the worker runs, unless it runs in a container for one job"
        return Check(Status.WARN, _WHAT, f"switched off ({SETTING}=off): commands may do what the worker may", fix)
    missing = lacking(means)
    if missing:
        found = f"this machine lacks {' and '.join(missing)}"
        less = "commands run with less"
        if not means.landlock:
            less = "commands run, and read whatever this user may read"
            less += "" if means.namespaces else ", and write whatever it may write"
        refused = "execute_bash and python_repl do not run" if mode == "required" else less
        return Check(Status.WARN, _WHAT, f"{found}: {refused}", f"see {_HOW}")
    landlock = f"Landlock version {means.landlock}, seccomp"
    if means.namespaces:
        return Check(Status.OK, _WHAT, f"{landlock}, namespaces{'' if means.proc else ' without a /proc of their own'}")
    return without_namespaces(mode, landlock)


def without_namespaces(mode: str, landlock: str) -> Check:
    """Say what is different on a machine where this user may not make namespaces."""
    fix = f"allow namespaces for this user to lift that: {_HOW}"
    if mode == "best_effort":
        found = (
            f"{landlock}; no namespaces, so keys, .env, .git and .loom in a working directory are not protected: "
            "commands read the keys and change hooks, settings and the project's policy"
        )
        return Check(Status.WARN, _WHAT, found, f"{fix}; or unset LOOM_CONFINEMENT, which protects them even so")
    found = (
        f"{landlock}; no namespaces, so commands stay in one process group, cannot change attributes of files, and "
        "make no new files beside keys, .env, .git or .loom: no `git commit`"
    )
    return Check(Status.OK, _WHAT, found, fix)
