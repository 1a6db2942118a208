"""Sphinx reads this: MyST pages, the Furo theme, nothing from the network."""

import klip

project = "Klip"
author = copyright = "the Klip authors"
version = release = klip.__version__
language = "en"

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 4
highlight_language = "none"  # a block without a language is a command or its output
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries = False
nitpicky = False  # types of other libraries have no page here
exclude_patterns: list[str] = []

html_theme = "furo"
html_title = f"Klip {klip.__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["../extra"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"footer_icons": [], "navigation_with_keys": True}
pygments_style = "tango"
pygments_dark_style = "github-dark"
