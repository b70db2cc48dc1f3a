"""Commands that stay.

The worker and its log, ``loom dev``, the gateway, and the delivery of webhooks. Imports `worker` and `loom_gateway`
when they run; imported by `loom_cli.app` alone.
"""
