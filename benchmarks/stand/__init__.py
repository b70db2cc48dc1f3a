"""What it is measured with: the contestants, their servers and processes, and the work that all of them do."""
