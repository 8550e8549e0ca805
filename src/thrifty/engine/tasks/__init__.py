"""Tasks: classification, regression and ranking, with their targets, losses, scores and answers."""
