"""Commands that read a job.

Lists and headlines (show, summary, tables), its conversation, its effects, its recursion and kept outputs. Imports
`loom_cli.render`; imported by `approve` and `control` for tables.
"""
