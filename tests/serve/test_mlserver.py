"""A real MLServer as the remote: the command in THRIFTY_MLSERVER, or ``mlserver`` on the path.

It needs an environment of its own: MLServer asks for an older starlette than the gateway runs on.
"""

import asyncio
import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ports import free_ports
from thrifty.errors import RemoteFailure
from thrifty.serve.config import RemoteSettings
from thrifty.serve.remote import RemoteModel

START = 60  # seconds
TRAIN = """
import joblib, sys
import numpy as np
from sklearn.linear_model import LogisticRegression
X = np.random.default_rng(0).normal(size=(200, 2))
model = LogisticRegression().fit(X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 1))
joblib.dump(model, "model.joblib")
np.savetxt("expected.txt", model.predict_proba(X))
"""


@pytest.fixture(scope="module")
def mlserver(tmp_path_factory):
    """The address of a model of three classes, and what it should say about 200 rows."""
    command = os.environ.get("THRIFTY_MLSERVER") or shutil.which("mlserver")
    if command is None:
        pytest.skip("no mlserver: `make test-mlserver` installs one in an environment of its own")
    folder = tmp_path_factory.mktemp("mlserver")
    python = Path(command).with_name("python")
    subprocess.run([python, "-c", TRAIN], cwd=folder, check=True, env={"PATH": os.environ["PATH"]})
    http, grpc, metrics = free_ports(3)
    settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    (folder / "settings.json").write_text(json.dumps({**settings, "parallel_workers": 0}))
    model = {"name": "m", "implementation": "mlserver_sklearn.SKLearnModel"}
    (folder / "model-settings.json").write_text(
        json.dumps({**model, "parameters": {"uri": "./model.joblib"}})
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [command, "start", "."],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        )
        try:
            wait_until_ready(f"http://127.0.0.1:{http}/v2/models/m/ready", process)
            yield f"http://127.0.0.1:{http}/v2/models/m", np.loadtxt(folder / "expected.txt")
        finally:
            process.kill()
            process.wait()


def wait_until_ready(url, process):
    until = time.monotonic() + START
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("mlserver did not start")


@pytest.mark.slow
def test_a_classifier_in_mlserver_answers_with_its_probabilities(mlserver):
    url, expected = mlserver
    X = np.random.default_rng(0).normal(size=(200, 2))

    async def run():
        settings = RemoteSettings(total_timeout=5.0, output_name="predict_proba")
        remote = RemoteModel(url, settings=settings)
        labels = RemoteModel(url, settings=RemoteSettings(total_timeout=5.0))
        await remote.start()
        await labels.start()
        try:
            with pytest.raises(RemoteFailure, match="datatype.*INT64"):
                await labels.ask(
                    X, ("a", "b"), 3
                )  # a classifier that is not asked for probabilities gives labels
            return await asyncio.gather(remote.ask(X, ("a", "b"), 3), remote.ask(X[:1], ("a", "b"), 3))
        finally:
            await remote.close()
            await labels.close()

    many, one = asyncio.run(run())
    np.testing.assert_allclose(many, expected, atol=1e-6)
    np.testing.assert_allclose(one, expected[:1], atol=1e-6)
