"""What development needs on one machine.

The Temporal CLI and its dev server, ``temporal-dev.yml``, the guardian that ends processes with their owner, and the
fake model. Imports `loom_dsl` only; imported by commands, the doctor and the demo.
"""
