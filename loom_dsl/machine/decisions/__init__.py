"""What people decide: who may, with which signature, when it counts, how many must agree, what is kept of it.

`stages` goes by the table in `machine/decision_states.py`; the other modules are one idea each and do not know it.
Imports the kind `approvals`, which asks the questions; imported by `machine/signals.py`.
"""
