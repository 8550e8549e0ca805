"""The gateway: a system served over HTTP, with its full model in the file or on another server."""
