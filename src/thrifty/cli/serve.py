"""``thrifty serve``: serve a system over HTTP."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from thrifty.cli.console import print_text
from thrifty.cli.options import PublicKey, RowKey, SystemFile
from thrifty.errors import InvalidInputError

__all__ = ["serve"]


def serve(
    system: SystemFile,
    full: Annotated[
        str | None,
        typer.Option(
            help="Address of a full model served by the Open Inference Protocol: http://HOST:PORT/v2/models/NAME. "
            "By default the full model in the file.",
            metavar="URL",
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Mean cost per row to spend over the stream of requests.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 8080 by default.")] = None,
    admin_host: Annotated[
        str | None,
        typer.Option(help="Address of metrics, status page and administration; 127.0.0.1 by default."),
    ] = None,
    admin_port: Annotated[int | None, typer.Option(help="Their port; 8081 by default.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that answer and share the budget; 1 by default.")
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with lists of API keys: clients, metrics, admin; SIGHUP reads it again."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file of a certificate chain: both ports speak HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its private key.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model in URLs; the name of the file by default.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings; options of the command line override it.")
    ] = None,
    row_key: RowKey = None,
    public_key: PublicKey = None,
) -> None:
    """Serve a system over HTTP. API keys come from THRIFTY_API_KEY and THRIFTY_REMOTE_API_KEY, or from --config."""
    try:
        from thrifty.serve.server import serve_alone, serve_workers
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"thrifty serve needs {error.name}, which is not installed: pip install 'thrifty[serve]'."
        ) from error
    from thrifty.serve.config import Config, read_config
    from thrifty.serve.gateway import load_version

    settings = Config(name=system.stem) if config is None else read_config(config)
    settings = settings.with_changes(
        full=full,
        budget=budget,
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=admin_port,
        workers=workers,
        keys=None if keys is None else str(keys),
        tls_cert=None if tls_cert is None else str(tls_cert),
        tls_key=None if tls_key is None else str(tls_key),
        row_key=row_key,
        name=name or (system.stem if settings.name == Config.name else None),
        api_key=os.environ.get("THRIFTY_API_KEY"),
        remote_api_key=os.environ.get("THRIFTY_REMOTE_API_KEY"),
    )
    scheme = "http" if settings.tls_cert is None else "https"

    def announce() -> None:
        print_text(
            f"{settings.name} answers at {scheme}://{settings.host}:{settings.port}; status at "
            f"{scheme}://{settings.admin_host}:{settings.admin_port}"
        )

    load = partial(load_version, system, public_key)
    (serve_alone if settings.workers == 1 else serve_workers)(load, settings, announce)
