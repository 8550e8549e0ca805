"""What serves: stages, then the full model; rows walk from one to the next and buy on the way."""
