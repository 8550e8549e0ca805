"""Learners make the systems that the engine runs: trees, cascades, the methods of the paper, routers."""
