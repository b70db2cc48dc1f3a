"""The expressions of the language.

Their compiler, functions, values and limits, what they cost at least, and ``${...}`` in texts. Imports `text`,
`fields` and `errors`; imported by documents, graphs and the machine.
"""
