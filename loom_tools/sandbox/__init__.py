"""Running a command so that it can do no harm beyond its working directory.

`run.run_confined` is what tools call. The other modules are what happens in the processes that it starts: a worker
has one `launcher`, a small process without threads or secrets, which forks a `guard` for each command. The guard
makes the namespaces (`namespaces`), watches limits, and ends everything when the worker closes its end of the
connection, dies, or time is up. `inside` is the last step before the command: limits, Landlock, seccomp, exec.

Nothing is imported here: the launcher runs without Loom's dependencies.
"""
