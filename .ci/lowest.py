"""Print the lowest versions that pyproject.toml allows, one pin per line: constraints to test them with."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
wanted = [
    *project["dependencies"],
    *(one for extra in sys.argv[1:] for one in project["optional-dependencies"][extra]),
]
for requirement in wanted:
    found = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement)
    if found is None:
        sys.exit(f"{requirement!r} names no lowest version; write it as NAME>=VERSION")
    print("{}=={}".format(*found.groups()))
