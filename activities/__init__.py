"""Side effects: models, tools and the store, called by workflows by name."""
