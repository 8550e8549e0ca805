"""Pictures, and a page that a reader without Python can open."""
