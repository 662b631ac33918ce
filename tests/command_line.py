"""Running the command line within a test, and reading the one sentence of an error."""

from __future__ import annotations

from click.testing import CliRunner, Result

from copyproof.command.main import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def sentence(result: Result) -> str:
    """The one line that an error prints."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.strip().splitlines()
    return line
