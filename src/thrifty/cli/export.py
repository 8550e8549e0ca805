"""``thrifty export``: write a system as source code for a device, or as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from thrifty.cli.console import notes_of_warnings, print_json, print_text
from thrifty.cli.options import AsJson, PublicKey, SystemFile

__all__ = ["export"]


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
    max_flash: Annotated[
        str | None,
        typer.Option(
            help="Bytes of flash for tables and program, such as 32k: leaves are narrowed, then trees and stages "
            "taken. What is left is saved as system.thrifty beside the source, without a certificate.",
            metavar="BYTES",
        ),
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
    from thrifty.bundle.storage import load, save
    from thrifty.cli.system import column_name, text_columns
    from thrifty.device.export import export as write
    from thrifty.evidence.observe import chain_of
    from thrifty.tables.files import read_table

    with notes_of_warnings():
        known = load(system, public_key=public_key)
        cells = labels = None
        if rows is not None:
            table = read_table(rows, as_text=text_columns(known, None))
            cells, target = chain_of(known).schema.cells(table), column_name(known, "target")
            labels = table[target].to_numpy() if max_flash and target in table.columns else None
        written = write(
            known, out, to=to, leaves=leaves, max_flash=max_flash, budgets=budget or (), X=cells, y=labels
        )
        if max_flash:
            save(written.system, out / "system.thrifty")
    if json:
        print_json(
            {
                "files": [str(path) for path in written.files],
                "identity": written.identity,
                "flash_bytes": written.flash_bytes,
                "table_bytes": written.table_bytes,
                "state_bytes": written.state_bytes,
                "most_steps": written.most_steps,
                "rows_moved": written.n_moved,
            }
        )
        return
    lines = [f"steps      {written.most_steps:>9,} comparisons at most for a row"]
    if to == "c":
        lines = [
            f"flash      {written.flash_bytes:>9,} bytes on a Cortex-M4, {written.table_bytes:,} of them tables",
            f"session    {written.state_bytes:>9,} bytes of RAM",
            *lines,
        ]
    if written.n_moved is not None:
        lines.append(f"moved      {written.n_moved:>9,} rows of the table")
    print_text("\n".join([*lines, f"wrote {', '.join(map(str, written.files))} (system {written.identity})"]))
