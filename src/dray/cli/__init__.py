"""The command line: words in, words out. Everything it does goes through `dray.workspace`."""
