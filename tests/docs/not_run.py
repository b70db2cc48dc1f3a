"""The blocks of the documentation that no test runs, and why: page, the block's first line, reason."""

NOT_RUN = {
    (
        "README.md",
        "make demo   # an agent whose worker is killed twice, and a decision that comes as a plain Temporal signal",
    ): "is the test command itself, and what tests/cli/test_demo.py runs",
    ("README.md", ". .venv/bin/activate"): "tests run in the environment that they were started in",
    ("README.md", "docker build -t loom ."): "needs Docker and a registry",
    ("docs/howto/production.md", "docker build -t loom ."): "needs Docker and a registry",
    ("docs/howto/production.md", "export LOOM_ADDRESS=temporal.example:7233"): "tests/cli/test_access.py does it",
    (
        "docs/howto/production.md",
        "export LOOM_ADDRESS=us-east-1.aws.api.temporal.io:7233 LOOM_NAMESPACE=orders.a1b2c",
    ): "needs an account",
    (
        "docs/reference/tools.md",
        "loom worker --secret GITHUB_TOKEN@api.github.com",
    ): "tests/cli/test_serving.py starts it, and tests/tools/test_tools_in_jobs.py lends a secret to one host",
}
