"""Webhooks: events of jobs, told to addresses outside; written down with the events, delivered by a workflow."""
