"""Without torch, no doctest is looked for in the modules that import it."""

import importlib.util

collect_ignore = (
    []
    if importlib.util.find_spec("torch")
    else ["greedy.py", "masked.py", "mutual_information.py", "naive_bayes.py", "oracle.py"]
)
