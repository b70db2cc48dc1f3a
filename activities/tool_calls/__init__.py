"""The stages of a tool call: discover, validate, authorize, check_cancel, execute, format.

What a call names (call_reader), how it is judged (call_policy) under the layers of policy (policy_layers), what an
approver is shown (approval_request) and whether it was approved (approval_check), the execution under the effect
ledger (execute) and taking it back (undo), hooks, and the calls that nodes of graphs make. Only the registration
imports it.
"""
