"""Ports for servers on the loopback, of benchmarks and tests."""

import socket


def free_ports(count):
    """Numbers of ports that nothing listens on; open together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
