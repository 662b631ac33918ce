"""The pipelines that a campaign lowers with, by name."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

from copyproof.spec.errors import BadInput, first_line
from copyproof.verify.passes import named

PIPELINES: dict[str, dict[str, Any]] = {
    "shipped": {"emit_mutable_buffer_names": True},
    "unnamed": {},
    "reinplace": {"emit_mutable_buffer_names": True, "run_reinplace_pass": True},
}
"""ExecuTorch's defaults with the names of mutable buffers, without them, and with its reinplacing."""


def config_of(pipeline: str) -> ExecutorchBackendConfig:
    """A configuration of its own: of one of `PIPELINES`, or of `pkg.mod:name`, a configuration or what makes one.

    Raises:
        BadInput: there is no such pipeline.
    """
    if pipeline in PIPELINES:
        return ExecutorchBackendConfig(**PIPELINES[pipeline])
    if ":" not in pipeline:
        raise BadInput(
            f"--pipeline {pipeline!r} is none of {', '.join(PIPELINES)}, nor pkg.mod:name of a configuration"
        )
    found = named("--pipeline", pipeline)
    try:
        found = found() if callable(found) else found
    except Exception as error:  # whatever the function raises
        raise BadInput(f"--pipeline {pipeline} cannot be called: {first_line(error)}; give a configuration") from error
    if not isinstance(found, ExecutorchBackendConfig):
        raise BadInput(f"--pipeline {pipeline} is a {type(found).__name__}, expected an ExecutorchBackendConfig")
    return deepcopy(found)


def carried_by(config: ExecutorchBackendConfig) -> list[str]:
    """Parts of the names of the buffers whose contents the file carries; the others start at zero."""
    passes = config.passes if isinstance(config.passes, list) else []
    return [part for each in passes if isinstance(each, InitializedMutableBufferPass) for part in each.patterns]
