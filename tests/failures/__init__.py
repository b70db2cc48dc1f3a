"""That bad input of every kind is told in words, at the level of a whole job."""
