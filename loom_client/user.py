"""Who sits here, as decisions and starts of jobs say it."""


def user_name() -> str:
    """Give the name of who runs the command."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in this container
        return "somebody"
