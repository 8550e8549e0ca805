"""The server half: send the rows of ask.bin to `thrifty serve`, with the identity of the system on the device."""

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from thrifty import load

names = load("system.thrifty").chain_.schema.names
identity = re.search(r'THRIFTY_MODEL_ID "(\w+)"', Path("model/thrifty_model.h").read_text())[1]
for row in np.fromfile("ask.bin", dtype=[("number", "<u4"), ("cells", "<f4", len(names))]):
    cells = dict(zip(names, row["cells"].tolist(), strict=True))
    body = json.dumps({"rows": [cells], "id": str(row["number"])}).encode()
    headers = {"Content-Type": "application/json", "Thrifty-Model": identity}
    request = urllib.request.Request(f"{sys.argv[1]}/predict", body, headers)
    try:
        with urllib.request.urlopen(request) as response:
            print(row["number"], json.load(response)["answers"][0]["answer"])
    except urllib.error.HTTPError as error:
        sys.exit(error.read().decode())
