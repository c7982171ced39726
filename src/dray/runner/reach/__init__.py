"""What reaches into a live run over a channel: commands (`commands`), its ports (`ports`). Begin with `door.py`."""
