"""Commands of approvers.

List and show approvals, decide them one by one or many, remembered rules, keys that sign, and the audit. Imports
`loom_cli.commands.run` and `show` for prompts and tables; imported by `loom_cli.app` alone.
"""
