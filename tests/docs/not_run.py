"""The blocks of the documentation that no test runs, and why: page, the block's first line, reason."""

NOT_RUN = {
    (
        "README.md",
        "make demo   # an agent whose worker is killed twice, and a decision that comes as a plain Temporal signal",
    ): "is the test command itself, and what has tests of its own",
    ("README.md", ". .venv/bin/activate"): "tests run in the environment that they were started in",
    ("README.md", "docker build -t loom ."): "needs Docker and a registry",
    ("docs/howto/production.md", "docker build -t loom ."): "needs Docker and a registry",
}
