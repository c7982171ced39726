"""What travels to the machine: claims a run, starts it, guards it, ends it, and shows it to whoever asks.

Standard library only, Python 3.8 or later, imports nothing of dray. Unpacked there as `dray_runner`. Read in this order:
`serve` (what a channel can ask), `life` (a run from claim to end), `guard` (the script's parent), `visit` (a run whose people are gone).
"""
