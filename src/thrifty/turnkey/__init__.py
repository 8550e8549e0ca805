"""From a table to a chosen system in one file, and from that file to answers: what the command line calls."""
