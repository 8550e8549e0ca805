"""How it is minimised; every solver returns a ``Solution``."""
