"""The commands of ``loom``, a package for each group.

`run` starts and follows jobs, `show` reads them, `approve` decides, `control` steers them, `author` is for files,
`serve` for processes that stay. A module's top imports only typer and what is as light; what a command needs is
imported when it runs. Imported by `loom_cli.app` alone.
"""
