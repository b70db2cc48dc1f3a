"""YAML in, findings with places out, YAML again.

The only package that reads YAML. Imports `text`, `errors` and `expr`; imported by whatever has a document.
"""
