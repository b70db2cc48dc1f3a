"""What an approval is, without deciding one.

A decision, who may make it and until when (policy), and its signature. Imports `tools` and what is below it; imported
by `permissions` and all above.
"""
