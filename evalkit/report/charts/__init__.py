"""Charts of the page, as HTML and SVG whose text keeps its size whatever the width.

Horizontal positions are percentages, so that nothing is scaled: a narrow screen gets a narrower
plot with labels as large as on a wide one, and no library is needed.
"""
