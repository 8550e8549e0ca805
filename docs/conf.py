"""How the site is built: `make docs`."""

import os
import re
from pathlib import Path
from typing import Any

import thrifty

# One core for each library: examples are small, and a build should not take a machine over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent

project = "thrifty"
author = "The thrifty developers"
copyright = author  # noqa: A001 - Sphinx's name
version = release = thrifty.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.zip", "gallery/*.json"]
root_doc = "index"

# -- pages -------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# The functions of this file cannot be pickled, so that every build starts afresh.
suppress_warnings = ["config.cache"]

# -- reference -----------------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"  # docstrings say types in words
numpydoc_show_class_members = False
numpydoc_use_plots = False
templates_path = ["_templates"]

# -- gallery -------------------------------------------------------------------------------------


def drawn_alike(gallery_conf: dict[str, Any], name: str) -> None:  # noqa: ARG001 - sphinx-gallery calls it so
    """Give the pictures of all examples the same look."""
    import matplotlib as mpl  # not before an example runs

    mpl.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 120}
    )


sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "ExampleTitleSortKey",
    "reset_modules": ("matplotlib", drawn_alike),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "show_memory": False,
}

# -- looks ---------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "thrifty"
html_static_path = ["_static"]
html_css_files = ["thrifty.css"]
html_favicon = "_static/mark.svg"
html_show_sourcelink = False
html_sidebars = {"index": [], "start": [], "glossary": []}
html_theme_options = {
    "logo": {"text": "thrifty", "image_light": "_static/mark.svg", "image_dark": "_static/mark.svg"},
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def without_labels_of_others(*said: Any) -> None:
    """Keep the words, and drop the links, of docstrings that methods inherit from scikit-learn."""
    *_, obj, _, lines = said  # Sphinx also says which application, what kind of object, and its name
    if getattr(obj, "__module__", "").startswith("sklearn."):
        lines[:] = [re.sub(r":ref:`([^`<]+) <[^`>]+>`", r"\1", line) for line in lines]


def setup(app: Any) -> None:
    """Register what Sphinx calls."""
    app.connect("autodoc-process-docstring", without_labels_of_others)
