"""Real stateful models and small hazard cases."""
