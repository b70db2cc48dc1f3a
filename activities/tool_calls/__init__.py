"""The stages of a tool call: discover, validate, authorize, check_cancel, execute, format.

What a stage knows of its call (evaluator), the layers of policy, what an approver is shown (approval_request) and
whether it was approved (approval_check), the execution under the effect ledger (execute, effects), hooks, and the
calls that nodes of graphs make. Imports `activities.model`; imported by `activities.jobs` and the registration.
"""
