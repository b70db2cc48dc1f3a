"""What Loom costs, side by side with a loop that is not durable and with a hand-written Temporal workflow."""
