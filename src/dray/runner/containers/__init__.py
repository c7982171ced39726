"""Runs in containers: the machine's engine, its images, and the launcher that starts a run in one.

Begin with `launcher.py`. `engines`, `words`, `users` and `gpus` are pure: text in, value out. `keeper` is the one process of ours
that stays beside a container. Why so: docs/decisions/0035.
"""

DEFAULT_IMAGE = "python:3.12-slim"
"""For a run that names none. The CUDA libraries of a framework come with its packages; the driver's come with the GPU."""

ENGINES = ("docker", "podman", "nerdctl")
"""Those that are known, in the order in which they are looked for."""
