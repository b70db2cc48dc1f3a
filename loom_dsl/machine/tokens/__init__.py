"""What tokens are moved with, whatever the kind of their node.

`moves` completes and fails a node and follows its edges, and asks the kinds by the table that it is given; ending takes
tokens away, retry judges what a party answered and waits, compensation takes back, checkpoint keeps what a failed graph
had come to. All of it over `core`, the machine's state and its expressions, and `scope`, the names in these. Imports
the machine's state and commands; imported by the kinds and the interpreter.
"""
