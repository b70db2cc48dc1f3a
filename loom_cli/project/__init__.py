"""What a user does with a project's files: check them, draw them, begin them, and clear old jobs away."""
