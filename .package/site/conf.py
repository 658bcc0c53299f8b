"""What Sphinx makes of the pages that .package/site.py puts together: searchable, light and dark, nothing from a network."""

project = "kvscope"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"  # the system's letters, its own scripts
html_title = "kvscope"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_favicon = "static/kvscope.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False
html_theme_options = {"light_logo": "kvscope.svg", "dark_logo": "kvscope.svg"}
# The pages are written for any reader of Markdown, so what only this one knows is left as it is.
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target"]
myst_enable_extensions = ["attrs_inline", "strikethrough"]
myst_heading_anchors = 6
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
