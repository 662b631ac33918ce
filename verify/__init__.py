"""The prover."""
