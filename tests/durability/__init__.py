"""That a job survives what happens to the processes that serve it."""
