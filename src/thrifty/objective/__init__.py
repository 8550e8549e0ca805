"""What is minimised and what a route costs; no algorithm lives here."""
