"""The demo: an agent at work on Loom's own checkout, whose worker is killed twice.

``python -m demo`` starts everything it needs on free ports, and ends everything again.
"""
