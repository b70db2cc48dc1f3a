"""What is measured: each module one question, answered by a table in RESULTS.md."""
