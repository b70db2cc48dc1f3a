"""What a model is shown in a turn.

The activities that choose the messages of a turn by priority (assemble), summarise a long conversation (compress),
and read and add a turn's text. Imports `activities.chat` for the summary's own calls; only the registration imports it.
"""
