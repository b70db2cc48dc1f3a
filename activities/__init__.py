"""Side effects: models, tools and the store, called by workflows by name.

A room for each kind of work, such as `model`, `context`, the stages of `tool_calls` and whole `jobs`, and the list of
all of them in `registration`. Imports `loom_tools`, `loom_store` and `loom_dsl`, never `workflows`; `worker.py` and
`loom_cli` import it.
"""
