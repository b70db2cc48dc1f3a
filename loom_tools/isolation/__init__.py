"""Users' code in a process of its own, for a step that did not survive in the worker."""
