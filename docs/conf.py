"""Settings of the documentation site: `python -m sphinx -W docs docs/_build`."""

from __future__ import annotations

import sys
from pathlib import Path

from gradpeel import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "gradpeel"
author = "the gradpeel developers"
copyright = author  # noqa: A001 -- the name is Sphinx's
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "command_line",
    "plain_docstrings",
]
# What a command wrote for the reproduction is data, and quoted by its page.
exclude_patterns = ["_build", "reproduction"]

# Our pages link to files of the repository the way GitHub resolves them.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

# Docstrings are written for people who read the source: code stands in single backticks.
default_role = "py:obj"
autodoc_member_order = "bysource"
# The pages show our side of these; the site is built without them.
autodoc_mock_imports = ["flwr", "nvflare"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "tutorial_order.TutorialOrder",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
}
# The gallery's timing pages are of no use to readers.
exclude_patterns += ["sg_execution_times.rst", "tutorials/sg_execution_times.rst"]

html_theme = "furo"
html_title = "gradpeel"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#9a3412", "color-brand-content": "#9a3412"},
    "dark_css_variables": {"color-brand-primary": "#fdba74", "color-brand-content": "#fdba74"},
}
