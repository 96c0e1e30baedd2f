"""How Sphinx builds the site. `make docs` stages the pages first: see tests/docs/site.py."""

from taskharbor import __version__

project = "TaskHarbor"
author = "the TaskHarbor authors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions: list[str] = []
suppress_warnings: list[str] = []
highlight_language = "text"
exclude_patterns = ["site"]

html_theme = "furo"
html_title = "TaskHarbor"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "static/favicon.svg"
html_copy_source = False
html_show_sphinx = False
html_show_sourcelink = False
html_use_index = False
pygments_style = "default"
pygments_dark_style = "github-dark"
# System fonts alone: nothing is loaded from elsewhere.
_FONTS = (
    "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
)
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
_SHARED = {"font-stack": _FONTS, "font-stack--monospace": _MONO}
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {**_SHARED, "color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {**_SHARED, "color-brand-primary": "#63b7e6", "color-brand-content": "#63b7e6"},
}
