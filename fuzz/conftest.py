"""What the tests of `pytest fuzz` share: the pass that `--pass` names."""

from copyproof.verify.conftest import pass_name, quiet, write_back_pass

__all__ = ["pass_name", "quiet", "write_back_pass"]
