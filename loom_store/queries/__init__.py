"""What a transaction can read and write, a mixin for each subject.

Jobs, conversations and blobs, events, effects, approvals, the audit chain, deliveries, steps under way, workers, the
store's identity, and retention. Imports tables and rows; imported by `loom_store.transaction`.
"""
