"""Text that all packages share.

Canonical JSON and digests, look-alike letters, printable text, wording of messages, and redaction. Imports the
standard library only; imported by everything.
"""
