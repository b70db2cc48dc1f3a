"""Who sits here, as decisions and starts of jobs say it. Quick to import: every command has it."""

import getpass


def user_name() -> str:
    """Give the name of who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return "somebody"
