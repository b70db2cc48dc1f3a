"""The pure core of Loom: documents, plans, the machine. No I/O, no clock, no randomness."""
