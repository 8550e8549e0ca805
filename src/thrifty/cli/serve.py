"""``thrifty serve``: serve a system over HTTP."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

import typer

from thrifty.cli.console import notes_of_warnings, print_text
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
    admin_port: Annotated[
        int | None,
        typer.Option(help="Port of metrics, status page and administration on 127.0.0.1; 8081 by default."),
    ] = None,
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
        from thrifty.serve.app import create_admin, create_app, direct
        from thrifty.serve.gateway import Loaded, run
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"thrifty serve needs {error.name}, which is not installed: pip install 'thrifty[serve]'."
        ) from error
    from thrifty.bundle.storage import load
    from thrifty.files import read_capped
    from thrifty.serve.config import Config, read_config

    settings = Config(name=system.stem) if config is None else read_config(config)
    settings = settings.with_changes(
        full=full,
        budget=budget,
        host=host,
        port=port,
        admin_port=admin_port,
        row_key=row_key,
        name=name or (system.stem if settings.name == Config.name else None),
        api_key=os.environ.get("THRIFTY_API_KEY"),
        remote_api_key=os.environ.get("THRIFTY_REMOTE_API_KEY"),
    )

    def load_version() -> Loaded:
        version = hashlib.sha256(read_capped(system, 2**30)).hexdigest()[:12]
        return Loaded(load(system, public_key=public_key), version)

    with notes_of_warnings():
        app = create_app(load_version(), settings, load=load_version)
    print_text(
        f"{settings.name} answers at http://{settings.host}:{settings.port}; status at http://127.0.0.1:{settings.admin_port}"
    )
    gateway = app.state.gateway
    run(direct(app), create_admin(gateway), gateway)
