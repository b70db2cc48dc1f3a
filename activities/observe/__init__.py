"""What activities tell of a job.

Events on their way into the store (events), metrics, and the lines of the worker's log (turn_log). Imports
`activities.record` and the webhooks' outbox; imported by every activity that tells of something.
"""
