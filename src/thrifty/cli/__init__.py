"""The command line: every command parses, calls the library and prints."""

from thrifty.cli.application import app, main

__all__ = ["app", "main"]
