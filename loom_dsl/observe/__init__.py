"""The words of events, webhooks, metrics and profiles.

Imports `agent` and what is below it; imported by `graph`, the activities and clients.
"""
