"""Reports: a system measured on labelled rows, as one self-contained HTML page."""
