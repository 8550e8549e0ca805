"""What learns the systems that the engine runs: trees, cascades, the paper's methods, routers."""
