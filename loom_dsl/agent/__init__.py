"""An agent, its turns and its conversation.

The definition that users write, the state of a turn and of a run, messages, what of a conversation a model is shown,
its compression, forks, and where contents came from. May import `permissions` and what is below it; imported by
`graph` and all above.
"""
