"""A page that asks for one value after another: the exported C as WebAssembly, in a single file, page.html.

Needs clang and lld. Values that the page proposes are those of a row that nothing was fitted on.
"""

import base64
import json
import subprocess
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from thrifty import BudgetedClassifier, StageOptions, export, save

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
data = load_breast_cancer(as_frame=True)
X, X_new, y, _ = train_test_split(data.data, data.target_names[data.target], test_size=0.3, random_state=0)
full = RandomForestClassifier(100, random_state=0)
stages = StageOptions(6, [(20, 3)], structure="line")  # a page has one order of questions
system = BudgetedClassifier(full, budget=4.0, stages=stages, random_state=0).fit(X, y)
exported = export(system, folder / "page_model", leaves="int16")
save(exported.system, folder / "page.thrifty", full="absent")
functions = ("start", "next", "give", "give_missing", "label", "cost")
subprocess.run(
    ["clang", "--target=wasm32", "-Os", "-ffreestanding", "-nostdlib", "-Wl,--no-entry"]
    + [f"-Wl,--export={name}" for name in ("__heap_base", *(f"thrifty_{name}" for name in functions))]
    + [exported.files[1], "-o", folder / "model.wasm"],
    check=True,
)
facts = {
    "program": base64.b64encode((folder / "model.wasm").read_bytes()).decode(),
    "names": list(X.columns),
    "classes": [str(one) for one in system.classes_],
    "rows": X_new.head(8).round(4).to_numpy().tolist(),
}
template = Path(__file__).with_name("page_template.html").read_text(encoding="utf-8")
(folder / "page.html").write_text(template.replace("@FACTS@", json.dumps(facts)), encoding="utf-8")
print(
    f"page.html: {(folder / 'model.wasm').stat().st_size:,} bytes of WebAssembly, system {exported.identity}"
)
