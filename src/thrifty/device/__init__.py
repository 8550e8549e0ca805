"""Export to devices: a fitted system as C99 source that asks for one column after another."""
