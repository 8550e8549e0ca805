"""``thrifty serve`` and ``thrifty export``: a system behind HTTP, as source code for a device, or as ONNX."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_text
from thrifty.cli.options import AsJson, PublicKey, RowKey, SystemFile, read_amounts
from thrifty.errors import InvalidInputError


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
        list[str] | None,
        typer.Option(
            help="Mean cost per row over the stream of requests; or that of a resource, such as minutes=15; "
            "repeat for several resources.",
            metavar="AMOUNT|RESOURCE=AMOUNT",
        ),
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
    from thrifty.serve.config import LOOPBACK, Config, read_config
    from thrifty.serve.gateway import load_version

    settings = Config(name=system.stem) if config is None else read_config(config)
    settings = settings.with_changes(
        full=full,
        budget=read_amounts("--budget", budget),
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
        if settings.host not in LOOPBACK:
            print_text(
                "Put a proxy in front, as deploy/nginx.conf: it takes slow clients, idle connections and TLS."
            )

    load = partial(load_version, system, public_key)
    (serve_alone if settings.workers == 1 else serve_workers)(load, settings, announce)


def export(
    system: SystemFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the source; it must be empty or new.")],
    to: Annotated[str, typer.Option(help="Language: c, which is C99, or onnx.")] = "c",
    leaves: Annotated[
        str | None,
        typer.Option(
            help="Type of the values of leaves in C: float32, the default, or int16, which takes half the bytes."
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(help="Trees in C: table, or code, which is faster and larger."),
    ] = "table",
    max_flash: Annotated[
        str | None,
        typer.Option(
            help="Bytes of flash for tables and program, such as 32k: leaves are narrowed, then trees and stages "
            "taken. What is left is saved as system.thrifty beside the source, without a certificate.",
            metavar="BYTES",
        ),
    ] = None,
    max_ram: Annotated[
        str | None, typer.Option(help="Bytes of RAM for a session, kept in the same way.", metavar="BYTES")
    ] = None,
    budget: Annotated[
        list[float] | None,
        typer.Option(
            help="Mean cost of a further operating point, which the device can switch to; repeatable."
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Table on whose rows changes of routes are counted; with its target, they choose what --max-flash "
            "leaves, and measure its operating points.",
            metavar="TABLE",
        ),
    ] = None,
    public_key: PublicKey = None,
    json: AsJson = False,
) -> None:
    """Write a system as C99 source for a device, which asks for one column after another, or as ONNX."""
    from thrifty.bundle.save_load import load, save
    from thrifty.cli.system import column_name, read_rows
    from thrifty.device.export import export as write

    with notes_of_warnings():
        fitted = load(system, public_key=public_key)
        cells = labels = None
        if rows is not None:
            frame, cells = read_rows(fitted, rows)[:2]
            target = column_name(fitted, "target")
            is_labelled = (max_flash or max_ram) and target in frame.columns
            labels = frame[target].to_numpy() if is_labelled else None
        settings: Any = {"leaves": leaves, "layout": layout, "max_flash": max_flash, "max_ram": max_ram}
        written = write(fitted, out, to=to, **settings, budgets=budget or (), X=cells, y=labels)
        if max_flash or max_ram:
            save(written.system, out / "system.thrifty")
    if json:
        numbers = {name: value for name, value in vars(written).items() if name not in ("n_moved", "system")}
        print_json({**numbers, "files": list(map(str, written.files)), "rows_moved": written.n_moved})
        return
    mean = "" if written.mean_steps is None else f", {written.mean_steps:,.1f} in the mean of the table"
    lines = [f"steps      {written.most_steps:>9,} comparisons at most for a row{mean}"]
    if to == "c":
        lines.insert(0, f"session    {written.state_bytes:>9,} bytes of RAM")
    if written.flash_bytes is not None:
        tables = f"{written.table_bytes:,} of them tables"
        lines.insert(0, f"flash      {written.flash_bytes:>9,} bytes on a Cortex-M4, {tables}")
    if written.n_moved is not None:
        lines.append(f"moved      {written.n_moved:>9,} rows of the table")
    print_text("\n".join([*lines, f"wrote {', '.join(map(str, written.files))} (system {written.identity})"]))
