"""The engine decides and bills: tables, prices, tasks, full models, purchases, walks, evidence. No learner in it."""
