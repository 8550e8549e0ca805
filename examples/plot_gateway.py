"""
Serving over HTTP: does a stream keep to its budget?
====================================================

With a budget the gateway holds the mean cost of the stream, also where its rows are harder than those of the fit. Here
it runs inside of this script, as ``thrifty serve --budget 3`` runs in a process of its own.
"""

import http.client
import json
import threading
import time

import matplotlib.pyplot as plt
import numpy as np
import uvicorn
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

from thrifty import BudgetedClassifier, StageOptions
from thrifty.serve.app import create_app
from thrifty.serve.config import Config

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
small = StageOptions(max_stages=6, sizes=[(20, 3)])
clf = BudgetedClassifier(GaussianNB(), budget=3, stages=small, cv=3, random_state=0).fit(X[:300], y[:300])

# %%
# Ordinary rows first, then rows of which the first stage is least sure.

new = X[300:]
sure = [one.stages[0].probability for one in clf.explain(new)]
stream = [*range(200), *np.tile(np.argsort(sure)[:50], 6)]


def costs(budget):
    server = uvicorn.Server(uvicorn.Config(create_app(clf, Config(budget=budget)), port=0, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    client, paid = http.client.HTTPConnection(*server.servers[0].sockets[0].getsockname(), timeout=10), []
    for number, row in enumerate(stream):
        body = json.dumps({"id": str(number), "rows": [new.iloc[row].to_dict()]})
        client.request("POST", "/predict", body, {"Content-Type": "application/json"})
        paid.append(json.loads(client.getresponse().read())["answers"][0]["cost"])
    server.should_exit = True
    return np.array(paid)


# %%
# Mean cost of 100 rows, at the operating point of the fit and with a budget for the stream.

fig, ax = plt.subplots(figsize=(6.4, 4))
for label, paid in (("operating point of the fit", costs(None)), ("budget of 3 for the stream", costs(3.0))):
    print(f"{label}: {paid.mean():.2f} per row")
    ax.plot(np.convolve(paid, np.ones(100) / 100, mode="valid"), label=label)
ax.axhline(3, color="grey", linestyle=":", label="budget")
ax.set(xlabel="request", ylabel="mean cost of 100 requests", ylim=(0, None))
ax.legend()
