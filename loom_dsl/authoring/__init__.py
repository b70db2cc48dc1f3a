"""What helps to write documents.

Drawings of plans, their differences, the JSON Schema of documents, SARIF, and a job drawn over its plan. The top of
`loom_dsl`: imported by clients only.
"""
