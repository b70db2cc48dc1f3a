"""The calling side: Python client, command line, development server."""
