"""A job's directory, and nothing outside it.

Opening by `openat2`, refused places, atomic replacement, listings, and what is known of a project. Imports
`loom_dsl`; imported by the built-in tools, the sandbox and activities.
"""
