"""What an answer is: targets, losses, scores, and how good an answer is."""
