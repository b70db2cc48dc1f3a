"""The activities that call a model.

A turn's call (call), a graph's `llm` node (llm), the tool calls of an answer (tool_calls), and what lost attempts
have used (usage). Imports `activities.chat`; only the registration imports it.
"""
