"""Asking a model behind an endpoint that speaks the OpenAI protocol.

The request's body and its sending (client), the answer's stream and its timeouts (stream), the answer put together
(reply), what the provider's errors mean (errors), which provider and prices a model's name stands for (provider), and
the connections of a worker (endpoints). Knows nothing of jobs: it imports `loom_dsl` and is imported by
`activities.runtime`, `activities.model` and `activities.context`.
"""
