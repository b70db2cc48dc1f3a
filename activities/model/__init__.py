"""The activities that call a model.

A turn's call (call), a graph's `llm` node (llm), and the tool calls of an answer (tool_calls). Imports
`activities.chat`; only the registration imports it.
"""
