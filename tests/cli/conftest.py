"""Files that the commands read and write: made once, changed by nobody."""

from types import SimpleNamespace

import pytest

from thrifty.cli import main


@pytest.fixture(scope="session")
def files(tmp_path_factory, while_fits_are_small, make_table):
    """A folder with a training table, new rows, prices, and the systems that two fits made of them."""
    folder = tmp_path_factory.mktemp("files")
    make_table(900).to_csv(folder / "train.csv", index=False)
    make_table(400, seed=1).to_csv(folder / "test.csv", index=False)
    make_table(50, seed=2).drop(columns="label").to_csv(folder / "new.csv", index=False)
    lines = [
        "feature,cost,group",
        "age,0.5,",
        "lab one,3,blood",
        "lab two,3,blood",
        "noise,2,",
        "colour,1,",
        "old,0,",
    ]
    (folder / "costs.csv").write_text("\n".join(lines))
    common = [
        "fit",
        folder / "train.csv",
        "--target",
        "label",
        "--prices",
        folder / "costs.csv",
        "--full",
        "svm",
    ]
    wishes = {
        "system": ["--budget", "3"],
        "certified": ["--max-loss", "0.1"],
    }
    with while_fits_are_small():
        for name, wish in wishes.items():
            assert main([*map(str, common), *wish, "-o", str(folder / f"{name}.thrifty"), "--jobs", "1"]) == 0
    return SimpleNamespace(
        folder=folder,
        train=folder / "train.csv",
        test=folder / "test.csv",
        new=folder / "new.csv",
        costs=folder / "costs.csv",
        system=folder / "system.thrifty",
        certified=folder / "certified.thrifty",
    )


@pytest.fixture
def run(capsys):
    """Run a command; returns its exit code and what it said on both streams."""

    def run_command(*arguments):
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        said = capsys.readouterr()
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return run_command


@pytest.fixture
def refused(run):
    """Run a command that must be refused: exit code 2, one sentence on standard error, nothing on the other."""

    def run_refused(*arguments):
        said = run(*arguments)
        assert said.code == 2, said
        assert said.out == ""
        lines = [line for line in said.err.splitlines() if line.strip()]
        assert len(lines) == 1, said.err
        assert lines[0].startswith("thrifty: ")
        return lines[0]

    return run_refused
