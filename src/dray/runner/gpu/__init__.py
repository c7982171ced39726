"""What the runner sees of GPUs: the devices, who is on them, and what a run does there."""
