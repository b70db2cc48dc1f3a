"""The HTTP gateway: approvals and jobs for those who cannot, or should not, reach the Temporal server.

The service, its routes, pages and links, and the tokens of those who ask. Works through `loom_client`, and may import
what is below that (`loom_tools`, `loom_store`, `loom_dsl`); only `loom_cli`, which starts it, imports it.
"""
