"""What decides and bills: tables, prices, tasks, the full model, purchases, the walk, evidence. Imports no learner."""
