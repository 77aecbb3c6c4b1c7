"""Sphinx configuration. The pages load nothing from anywhere else."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from onoff import __version__

project = "onoff"
release = version = __version__
copyright = "the onoff contributors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
source_suffix = [".md", ".rst"]
exclude_patterns = ["_build", "README.md"]
html_theme = "furo"
html_title = f"onoff {__version__}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["onoff.css"]
html_show_sphinx = False
html_copy_source = False
numfig = True
math_number_all = False
math_numfig = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False
suppress_warnings = ["myst.header"]
