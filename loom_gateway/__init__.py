"""The HTTP gateway: approvals and jobs for those who cannot, or should not, reach the Temporal server."""
