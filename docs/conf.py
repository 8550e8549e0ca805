"""How the site is built: `make docs`."""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.addnodes import desc_signature

import thrifty

# One core for each library: examples are small, and a build should not take a machine over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent

project = "thrifty"
author = "The thrifty developers"
copyright = author  # noqa: A001 - Sphinx's name
version = release = thrifty.__version__

extensions = [
    "myst_nb",  # with the pages of myst_parser
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
# Notebooks run at every build; an error in a cell ends it.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True
# The functions of this file cannot be pickled, so that every build starts afresh.
suppress_warnings = ["config.cache"]

# -- reference -----------------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"  # docstrings describe types
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_use_plots = False
templates_path = ["_templates"]

# -- gallery -------------------------------------------------------------------------------------


def set_plot_style(gallery_conf: dict[str, Any], name: str) -> None:  # noqa: ARG001 - sphinx-gallery calls it so
    """Set the style of the plots of all examples."""
    import matplotlib as mpl  # not before an example runs

    mpl.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "font.size": 12, "savefig.dpi": 120}
    )


# What newcomers ask, in that order.
EXAMPLES = [
    "first_cascade",
    "rivals",
    "medical_tests",
    "sensor_groups",
    "mistakes",
    "letters",
    "certificate",
    "credit_file",
    "receipts",
    "one_row",
    "disease_progression",
    "ranking",
    "device_and_server",
    "gateway",
    "many_models",
    "language_models",
    "own_family",
]


class QuestionOrder:
    """Sort key of sphinx-gallery: the place of an example in `EXAMPLES`."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> int:
        """Return the place; an example that is not listed is an error."""
        return EXAMPLES.index(filename.removeprefix("plot_").removesuffix(".py"))


sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": QuestionOrder,
    "thumbnail_size": (640, 440),
    "reset_modules": ("matplotlib", set_plot_style),
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
html_sidebars = {"index": [], "gallery/index": [], "migration": [], "changelog": []}
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


def drop_foreign_labels(*arguments: Any) -> None:
    """Drop the cross-references of docstrings that methods inherit from scikit-learn."""
    *_, obj, _, lines = arguments  # application, kind, name, object, options, lines
    if getattr(obj, "__module__", "").startswith("sklearn."):
        lines[:] = [re.sub(r":ref:`([^`<]+) <[^`>]+>`", r"\1", line) for line in lines]


def drop_source_of_options(app: Any, doctree: Any) -> None:  # noqa: ARG001 - Sphinx's signature
    """Drop the source links of classes that are documented under another package than others of their module.

    The page of a module's source links back by the package of the class that was read first.
    """
    for signature in doctree.findall(desc_signature):
        if signature.get("module") == "thrifty.learners.dynamod":
            signature["module"] = ""


def setup(app: Any) -> None:
    """Register what Sphinx calls."""
    app.connect("autodoc-process-docstring", drop_foreign_labels)
    app.connect("doctree-read", drop_source_of_options, priority=400)  # before viewcode
